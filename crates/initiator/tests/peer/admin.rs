//! The admin queue of the peer.

use std::sync::atomic::Ordering;

use ebb_nvme::command::{FABRICS, admin, fabrics};
use ebb_nvme::fabrics::DISCOVERY_NQN;
use ebb_nvme::{Sqe, Status};

use super::{NQN, Shared};

/// What an admin command is answered with.
pub struct Answer {
    pub status: Status,
    pub result: u64,
    pub data: Vec<u8>,
}

impl Answer {
    fn status(status: Status) -> Self {
        Self { status, result: 0, data: Vec::new() }
    }
    fn result(result: u64) -> Self {
        Self { status: Status::SUCCESS, result, data: Vec::new() }
    }
    fn data(data: Vec<u8>) -> Self {
        Self { status: Status::SUCCESS, result: 0, data }
    }
}

/// One controller's state.
#[derive(Default)]
pub struct Controller {
    configuration: u64,
    discovery: bool,
}

impl Controller {
    pub fn answer(&mut self, shared: &Shared, sqe: &Sqe, data: &[u8]) -> Answer {
        match (sqe.opcode, sqe.fabrics_type()) {
            (FABRICS, fabrics::CONNECT) => self.connect(shared, sqe, data),
            (FABRICS, fabrics::PROPERTY_GET) => match sqe.cdw(11) {
                0 => Answer::result(u64::from(shared.config.entries) | 1 << 37),
                0x14 => Answer::result(self.configuration),
                0x1c => {
                    let shut_down = if self.configuration >> 14 & 3 == 0 { 0 } else { 2 << 2 };
                    Answer::result(self.configuration & 1 | shut_down)
                }
                _ => Answer::status(Status::INVALID_FIELD),
            },
            (FABRICS, fabrics::PROPERTY_SET) => {
                self.configuration = sqe.cdw_pair(12);
                Answer::result(0)
            }
            (FABRICS, fabrics::DISCONNECT) => {
                shared.disconnects.fetch_add(1, Ordering::SeqCst);
                Answer::result(0)
            }
            (admin::IDENTIFY, _) => identify(shared, sqe),
            (admin::SET_FEATURES, _) if sqe.cdw(10) == 7 => {
                let most = u64::from(shared.config.queues - 1);
                Answer::result(most | most << 16)
            }
            (admin::KEEP_ALIVE, _) => Answer::result(0),
            (admin::GET_LOG_PAGE, _) if self.discovery => log_page(shared, sqe),
            _ => Answer::status(Status::INVALID_OPCODE),
        }
    }

    fn connect(&mut self, shared: &Shared, sqe: &Sqe, data: &[u8]) -> Answer {
        let text = |at: usize| {
            let field = &data[at..at + 256];
            let end = field.iter().position(|byte| *byte == 0).unwrap();
            std::str::from_utf8(&field[..end]).unwrap().to_owned()
        };
        assert_eq!(data.len(), 1024);
        self.discovery = text(256) == DISCOVERY_NQN;
        if text(512).ends_with(":unwelcome") {
            return Answer::status(Status::CONNECT_INVALID_HOST);
        }
        let entries = sqe.cdw(11) & 0xffff;
        let known = self.discovery || text(256) == NQN;
        if !known || entries == 0 || entries > shared.config.entries.into() {
            return Answer::status(Status::CONNECT_INVALID);
        }
        let controller = u16::from_le_bytes([data[16], data[17]]);
        match (sqe.cdw(10) >> 16, controller) {
            (0, 0xffff) => Answer::result(shared.controllers.fetch_add(1, Ordering::SeqCst).into()),
            (1.., controller) if controller < shared.controllers.load(Ordering::SeqCst) => {
                Answer::result(controller.into())
            }
            _ => Answer::status(Status::CONNECT_INVALID),
        }
    }
}

fn identify(shared: &Shared, sqe: &Sqe) -> Answer {
    let mut data = vec![0; 4096];
    let disks = shared.disks.lock().unwrap();
    match sqe.cdw(10) & 0xff {
        0 => {
            let Some(disk) = disks.get(&sqe.nsid.get()) else {
                return Answer::status(Status::INVALID_NAMESPACE);
            };
            let blocks = disk.data.len() as u64 / u64::from(disk.block_size);
            data[..8].copy_from_slice(&blocks.to_le_bytes());
            data[130] = disk.block_size.trailing_zeros() as u8;
        }
        1 => {
            data[4..8].copy_from_slice(b"0001");
            data[24..28].copy_from_slice(b"Peer");
            data[77] = shared.config.mdts;
            let capsule = (64 + shared.config.in_capsule) as u32 / 16;
            data[1792..1796].copy_from_slice(&capsule.to_le_bytes());
            data[1804] = 1;
        }
        2 => {
            let later = disks.keys().filter(|id| **id > sqe.nsid.get());
            for (place, id) in data.as_chunks_mut::<4>().0.iter_mut().zip(later) {
                *place = id.to_le_bytes();
            }
        }
        _ => return Answer::status(Status::INVALID_FIELD),
    }
    Answer::data(data)
}

fn log_page(shared: &Shared, sqe: &Sqe) -> Answer {
    let mut page = vec![0; 2048];
    page[8] = 1; // one record
    let record = &mut page[1024..];
    (record[0], record[1], record[2]) = (3, 1, 2);
    record[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    let (address, port) = (shared.address.ip().to_string(), shared.address.port().to_string());
    record[512..512 + address.len()].copy_from_slice(address.as_bytes());
    record[32..32 + port.len()].copy_from_slice(port.as_bytes());
    let (offset, length) = (sqe.cdw_pair(12) as usize, sqe.sgl_length.get() as usize);
    page.resize((offset + length).max(2048), 0);
    Answer::data(page[offset..offset + length].to_vec())
}
