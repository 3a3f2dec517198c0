"""`ebb-lab trial`: what a policy does on the user's own server, by alternating it with native.

`design` says what is done in which order, `running` starts `ebb run`, `watching` reads one block,
`course` goes through all of them, `judging` says what they show, `telling` and `page` print it.
"""
