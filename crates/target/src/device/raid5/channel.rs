//! One thread's way to an array: splits requests at stripes and drives the parts.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ebb_nvme::Status;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::super::{Buffer, Channel, Done, Io, Op, Pool};
use super::Inner;
use super::layout::PAGE;
use super::mailbox::{LOOK, Mailbox};
use super::segment::Segment;

/// Segments at work at once.
const ACTIVE: usize = 32;
/// Of them, those that only reads take: a read never waits for writes to end.
const FOR_READS: usize = 8;
/// Turns of one poll: a core has other things to do as well.
const TURNS: usize = 8;

/// A client's request.
pub(super) struct Request {
    pub(super) io: Io,
    /// Client bytes of the array that no segment has taken yet.
    next: u64,
    end: u64,
    start: u64,
    /// Segments at work.
    open: u32,
    pub(super) status: Status,
}

impl Request {
    /// Whether one segment is all of it.
    pub(super) fn single(&self, segment: &Segment) -> bool {
        segment.bytes() as u64 == self.end - self.start
    }
}

pub(super) struct RaidChannel {
    pub(super) inner: Arc<Inner>,
    members: Vec<Option<Box<dyn Channel>>>,
    /// By role, requests not answered.
    asked: Vec<u32>,
    pub(super) mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    pub(super) pool: Pool,
    pub(super) requests: Vec<Option<Request>>,
    free_requests: Vec<u32>,
    /// Requests with segments still to start: reads and writes, each kind in a circle.
    reads: VecDeque<u32>,
    writes: VecDeque<u32>,
    /// Whose turn it is when both have some.
    write_next: bool,
    pub(super) segments: Vec<Option<Segment>>,
    free_segments: Vec<u32>,
    /// Segments that can go on.
    pub(super) ready: VecDeque<u32>,
    /// Segments that wait for the keeper, in order: for a slot of the journal, where nobody
    /// overtakes them, or for the array's health to settle.
    pub(super) waiting: VecDeque<u32>,
    done: Vec<Done>,
    answers: Vec<Done>,
    news: Vec<u32>,
    pub(super) closing: bool,
}

impl RaidChannel {
    pub(super) fn new(inner: Arc<Inner>) -> io::Result<Self> {
        let array = &inner.array;
        let count = array.layout.members;
        let members = array.members.iter();
        let members: Vec<_> = members
            .map(|member| member.as_ref().map(|m| m.open()).transpose())
            .collect::<Result<_, _>>()?;
        let mailbox = Arc::new(Mailbox::new()?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let fds = members.iter().flatten().filter_map(|member| member.wake_fd());
        for fd in fds.chain([mailbox.fd()]) {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
        }
        array.join(&mailbox);
        let buffers = (ACTIVE * 2 * count) as u32;
        Ok(Self {
            pool: Pool::new(buffers, PAGE + array.layout.chunk as usize)?,
            members,
            asked: vec![0; count],
            mailbox,
            epoll,
            requests: Vec::new(),
            free_requests: Vec::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            write_next: false,
            segments: (0..ACTIVE).map(|_| None).collect(),
            free_segments: (0..ACTIVE as u32).collect(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            done: Vec::new(),
            answers: Vec::new(),
            news: Vec::new(),
            closing: false,
            inner,
        })
    }

    /// The request that may start a segment now: reads and writes take turns.
    fn next_in_turn(&mut self) -> Option<u32> {
        let free = self.free_segments.len();
        let may_write = free > FOR_READS && !self.writes.is_empty();
        let may_read = free > 0 && !self.reads.is_empty();
        let write = may_write && (self.write_next || !may_read);
        if !write && !may_read {
            return None;
        }
        self.write_next = !write;
        if write { self.writes.pop_front() } else { self.reads.pop_front() }
    }

    /// Starts segments while there is room, one of each request in turn.
    fn pump(&mut self) {
        while let Some(slot) = self.next_in_turn()
            && let Some(number) = self.free_segments.pop()
        {
            let layout = self.inner.array.layout;
            let Some(request) = &mut self.requests[slot as usize] else { return };
            let write = !matches!(request.io.op, Op::Read { .. });
            let (stripe, from) =
                (request.next / layout.stripe_bytes(), request.next % layout.stripe_bytes());
            // Reads go to one member each, writes change a stripe at once.
            let unit = if write { layout.stripe_bytes() } else { layout.chunk };
            let left = request.end - request.next;
            let to = (from / unit * unit + unit).min(from + left);
            let base = (request.next - request.start) as usize;
            request.next += to - from;
            request.open += 1;
            if request.next < request.end {
                let queue = if write { &mut self.writes } else { &mut self.reads };
                queue.push_back(slot);
            }
            let segment = Segment::new((slot, write), (stripe, from..to), base, layout.members);
            self.segments[number as usize] = Some(segment);
            self.begin(number);
        }
    }

    /// Asks a member; the answer comes to `segment`.
    pub(super) fn ask(
        &mut self,
        (number, role): (u32, usize),
        op: Op,
        (at, bytes): (u64, usize),
        buffer: Option<Buffer>,
    ) {
        let block = u64::from(self.inner.array.layout.block);
        let Some(segment) = &mut self.segments[number as usize] else { return };
        let Some(member) = &mut self.members[role] else {
            segment.failed |= 1 << role;
            return;
        };
        let tag = u64::from(number) << 8 | role as u64;
        member.submit(Io {
            tag,
            op,
            lba: at / block,
            blocks: (bytes as u64 / block) as u32,
            buffer,
        });
        segment.pending += 1;
        self.asked[role] += 1;
    }

    /// Hears what members answered.
    fn listen(&mut self) -> bool {
        let mut heard = false;
        let mut answers = std::mem::take(&mut self.answers);
        for role in 0..self.members.len() {
            if self.asked[role] > 0
                && let Some(member) = &mut self.members[role]
            {
                self.asked[role] -= member.poll(&mut answers) as u32;
            }
        }
        for answer in answers.drain(..) {
            heard = true;
            let (number, role) = ((answer.tag >> 8) as u32, (answer.tag & 0xff) as usize);
            let Some(segment) = &mut self.segments[number as usize] else { continue };
            assert!(segment.pending > 0, "a member answers what it was asked");
            segment.pending -= 1;
            let fault = segment.phase.fault();
            if !answer.status.is_success() {
                segment.failed |= 1 << role;
                if let Some(why) = fault {
                    self.inner.array.fail(role, why, answer.status);
                }
            }
            match fault {
                Some(_) => segment.new[role] = answer.buffer,
                None => segment.old[role] = answer.buffer,
            }
            if segment.pending == 0 {
                self.ready.push_back(number);
            }
        }
        self.answers = answers;
        heard
    }

    fn read_mail(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        self.mailbox.take(&mut news);
        let look = news.contains(&LOOK);
        self.ready.extend(news.drain(..).filter(|message| *message != LOOK));
        if look {
            // Ahead of what was started since.
            self.waiting.append(&mut self.ready);
            std::mem::swap(&mut self.waiting, &mut self.ready);
        }
        self.news = news;
    }

    /// Goes on with everything that can; true when something happened.
    fn turn(&mut self) -> bool {
        self.read_mail();
        let heard = self.listen();
        let busy = heard || !self.ready.is_empty();
        while let Some(number) = self.ready.pop_front() {
            self.advance(number);
        }
        self.pump();
        busy || !self.ready.is_empty()
    }

    /// A segment is over; so is its request when it was the last.
    pub(super) fn end(&mut self, number: u32, status: Status) {
        let Some(segment) = self.segments[number as usize].take() else { return };
        self.free_segments.push(number);
        if let Some(claim) = &segment.claim {
            self.inner.array.locks.release(claim);
        }
        let slot = segment.request;
        let Some(request) = &mut self.requests[slot as usize] else { return };
        request.open -= 1;
        if request.status.is_success() {
            request.status = status;
        }
        if request.open == 0
            && request.next == request.end
            && let Some(request) = self.requests[slot as usize].take()
        {
            self.free_requests.push(slot);
            self.done.push(request.io.done(request.status));
        }
    }
}

impl Channel for RaidChannel {
    fn submit(&mut self, io: Io) {
        let range = match io.range(self.inner.geometry()) {
            // What has completed is in the journals at least, durably, so a flush has nothing to
            // do; parity binds blocks together, so one cannot be let go alone.
            Ok(range) if range.is_empty() || matches!(io.op, Op::Flush | Op::Deallocate) => {
                return self.done.push(io.done(Status::SUCCESS));
            }
            Ok(range) => range,
            Err(status) => return self.done.push(io.done(status)),
        };
        let slot = self.free_requests.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        let (start, end) = (range.start, range.end);
        let read = matches!(io.op, Op::Read { .. });
        self.requests[slot as usize] =
            Some(Request { io, next: start, start, end, open: 0, status: Status::SUCCESS });
        match read {
            true => self.reads.push_back(slot),
            false => self.writes.push_back(slot),
        }
        self.pump();
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        if (0..TURNS).all(|_| self.turn()) {
            // There may be more to do: whoever sleeps instead of polling again is woken.
            self.mailbox.post(LOOK);
        }
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }

    fn register(&mut self, pool: &Pool) {
        self.members.iter_mut().flatten().for_each(|member| {
            member.register(&self.pool);
            member.register(pool);
        });
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }
}

impl Drop for RaidChannel {
    /// Stripes are not left half changed: what is in a journal goes to its place first.
    fn drop(&mut self) {
        self.closing = true;
        self.reads.clear();
        self.writes.clear();
        for number in 0..ACTIVE as u32 {
            let idle = |segment: &Segment| segment.pending == 0 && !segment.phase.must_end();
            if self.segments[number as usize].as_ref().is_some_and(idle) {
                self.end(number, Status::ABORT_REQUESTED);
            }
        }
        while self.segments.iter().any(Option::is_some) {
            if !self.turn() {
                let limit = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&limit));
            }
        }
    }
}
