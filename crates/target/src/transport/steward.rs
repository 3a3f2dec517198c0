//! What is changed in a group while it serves: other threads leave orders, the group carries them
//! out between polls. Nothing of it blocks: channels are opened and closed by who orders.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::controller::Wake;
use crate::device::{Channel, Device, Pool};

/// What a group is to do. The receiver of its answer may be gone.
pub(super) enum Order {
    /// Use a channel for a namespace, by its index, in slices of so many blocks.
    Attach(usize, Box<dyn Channel>, u32, Sender<()>),
    /// End what was asked of a namespace, and give the channel back once the device is done.
    Detach(usize, Sender<Box<dyn Channel>>),
    /// Close the connections that came by this address; without one, all, and take no more.
    Close(Option<SocketAddr>, Sender<()>),
}

/// Leaves orders for one group.
pub struct Steward {
    orders: Mutex<Vec<Order>>,
    is_filled: AtomicBool,
    /// Where most buffers of this group come from.
    pools: Vec<Pool>,
    wake: Wake,
}

impl Steward {
    pub(super) fn new(pools: &[Pool], wake: Wake) -> Arc<Self> {
        let (orders, is_filled) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { orders, is_filled, pools: pools.to_vec(), wake })
    }

    fn leave(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.is_filled.store(true, Ordering::Release);
        (self.wake)();
    }

    /// The orders that came since the last look.
    pub(super) fn take(&self) -> Vec<Order> {
        if !self.is_filled.load(Ordering::Relaxed) || !self.is_filled.swap(false, Ordering::AcqRel)
        {
            return Vec::new();
        }
        // Who leaves an order holds the lock for a push.
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a way to `device` for the namespace with this index. What comes: it is in use.
    ///
    /// # Errors
    /// When the system refuses what the device needs.
    pub fn attach(&self, namespace: usize, device: &dyn Device) -> io::Result<Receiver<()>> {
        let (way, slice) = open(device, &self.pools)?;
        let (done, is_done) = channel();
        self.leave(Order::Attach(namespace, way, slice, done));
        Ok(is_done)
    }

    /// Ends what was asked of a namespace that hosts see no more: what its device has ends as it
    /// ends, everything else is refused. What comes, when the device is done: the way to it.
    pub fn detach(&self, namespace: usize) -> Receiver<Box<dyn Channel>> {
        let (done, is_done) = channel();
        self.leave(Order::Detach(namespace, done));
        is_done
    }

    /// Closes the connections that came by `address`; without one, all, and those that come. What
    /// comes: they are closed.
    pub fn close(&self, address: Option<SocketAddr>) -> Receiver<()> {
        let (done, is_done) = channel();
        self.leave(Order::Close(address, done));
        is_done
    }
}

/// A channel to `device` that knows `pools`, and the blocks of one slice of a long command.
pub(super) fn open(device: &dyn Device, pools: &[Pool]) -> io::Result<(Box<dyn Channel>, u32)> {
    let slice = device.slice() / u64::from(device.geometry().block_size);
    let slice = slice.clamp(1, u32::MAX.into()) as u32;
    let mut channel = device.open()?;
    pools.iter().for_each(|pool| channel.register(pool));
    Ok((channel, slice))
}
