//! The ring against a model and under threads; `tests/loom.rs` has every interleaving.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::reactor::ring::ring;

#[test]
fn a_full_ring_gives_the_value_back_and_takes_it_later() {
    let (sender, mut receiver) = ring(2);
    assert_eq!((sender.push(1), sender.push(2), sender.push(3)), (Ok(()), Ok(()), Err(3)));
    assert_eq!(receiver.pop(), Some(1));
    assert_eq!(sender.push(3), Ok(()));
    assert_eq!([receiver.pop(), receiver.pop(), receiver.pop()], [Some(2), Some(3), None]);
}

#[test]
fn what_was_never_taken_is_dropped_once() {
    let token = std::sync::Arc::new(());
    let (sender, mut receiver) = ring(4);
    for _ in 0..3 {
        assert!(sender.push(std::sync::Arc::clone(&token)).is_ok());
    }
    drop(receiver.pop());
    assert_eq!(std::sync::Arc::strong_count(&token), 3);
    drop((sender, receiver));
    assert_eq!(std::sync::Arc::strong_count(&token), 1);
}

proptest! {
    #[test]
    fn it_is_a_bounded_queue(pushes in prop::collection::vec(any::<bool>(), 0..200)) {
        let (sender, mut receiver) = ring(8);
        let mut model = VecDeque::new();
        for (number, push) in pushes.into_iter().enumerate() {
            if push {
                let fits = model.len() < 8;
                prop_assert_eq!(sender.push(number).is_ok(), fits);
                if fits { model.push_back(number); }
            } else {
                prop_assert_eq!(receiver.pop(), model.pop_front());
            }
            prop_assert_eq!(receiver.is_empty(), model.is_empty());
        }
    }
}

#[test]
fn many_senders_lose_nothing_and_keep_their_order() {
    const EACH: u32 = 20_000;
    let (sender, mut receiver) = ring(16);
    std::thread::scope(|scope| {
        for who in 0..3_u32 {
            let sender = sender.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let mut value = (who, number);
                    while let Err(back) = sender.push(value) {
                        value = back;
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; 3];
        while next != [EACH; 3] {
            match receiver.pop() {
                Some((who, number)) => {
                    assert_eq!(number, next[who as usize]);
                    next[who as usize] += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
    assert!(receiver.is_empty());
}
