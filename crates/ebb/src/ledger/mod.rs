//! The ledger: energy by hour, in SQLite. Whoever runs adds to it, `ebb report` reads it.
//!
//! One table has amounts: an hour of the wall clock, what it is of, and of which kind. Amounts only
//! grow, so that a clock that jumps back counts nothing twice. Another one has what the trial says.

mod moment;
mod report;
mod tried;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use serde::Serialize;

pub use report::{ReportArgs, run};

/// Where the service keeps it.
pub const FILE: &str = "/var/lib/ebb/ledger.sqlite";

/// The number of the tables' structure.
const VERSION: i64 = 2;

/// What was saved, where Ebb acted: of a profile's cores.
pub const SAVED: &str = "saved";
/// What would have been saved, where it observed.
pub const POSSIBLE: &str = "possible";
/// Time in which the policy had not settled, so that nothing is said of it.
pub const SETTLING: &str = "settling";

/// Time as found, of a trial: nothing is saved in it.
pub const AS_FOUND: &str = "as found";

/// What a block as found says beside those before and after it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Its end, since 1970.
    pub unix_s: f64,
    /// The signal of the power, and the policy.
    pub of: String,
    pub policy: String,
    /// Mean power as found and with Ebb.
    pub found_w: f64,
    pub ebb_w: f64,
    /// Mean latency of users' requests, where it is known.
    pub found_s: Option<f64>,
    pub ebb_s: Option<f64>,
}

impl Pair {
    /// For people.
    pub fn text(&self) -> String {
        let Self { of, policy, found_w, ebb_w, .. } = self;
        let of = of.replace('_', " ");
        format!("trial: {of} {found_w:.1} W as found, {ebb_w:.1} W with {policy} around it")
    }
}

/// The hour since 1970, what the amount is of (a signal, a profile) and its kind: `measured`,
/// `modelled` or one of the above.
pub type Key = (i64, String, String);

/// Energy, at least and at most, of so much time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Amount {
    pub seconds: f64,
    pub least_j: f64,
    pub most_j: f64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.least_j += more.least_j;
        self.most_j += more.most_j;
    }
}

/// Amounts by hour.
pub type Amounts = BTreeMap<Key, Amount>;

/// Three decimals are a watt for an hour.
fn range([least, most]: &[f64; 2]) -> String {
    // None is printed as -0.000.
    let [least, most] = [least, most].map(|kwh| format!("{kwh:.3}").replace("-0.000", "0.000"));
    if least == most { least } else { format!("{least} to {most}") }
}

/// An open ledger.
pub struct Ledger(Connection);

impl Ledger {
    /// The one in `file`, which is made if it is not there. Every commit is on the disk before it
    /// counts as done.
    ///
    /// # Errors
    /// Where it is none, or cannot be had.
    pub fn open(file: &Path) -> Result<Self> {
        let db = Connection::open(file)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        let broken: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if broken != "ok" {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(rusqlite::Error::SqliteFailure(code, Some(broken)));
        }
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS energy (
               hour INTEGER, of TEXT, kind TEXT,
               seconds REAL NOT NULL, least_j REAL NOT NULL, most_j REAL NOT NULL,
               PRIMARY KEY (hour, of, kind)) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS trial (
               unix_s REAL NOT NULL, of TEXT NOT NULL, policy TEXT NOT NULL,
               found_w REAL NOT NULL, ebb_w REAL NOT NULL, found_s REAL, ebb_s REAL)",
        )?;
        let ledger = Self(db);
        ledger.check()?;
        ledger.0.pragma_update(None, "user_version", VERSION)?;
        Ok(ledger)
    }

    /// The one in `file`, only to read.
    ///
    /// # Errors
    /// As [`Self::open`], and where it is not there.
    pub fn read(file: &Path) -> Result<Self> {
        let ledger = Self(Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?);
        ledger.check()?;
        Ok(ledger)
    }

    fn check(&self) -> Result<()> {
        let version: i64 = self.0.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version <= VERSION {
            return Ok(());
        }
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_MISMATCH);
        let text = "it is of a newer version of Ebb".to_owned();
        Err(rusqlite::Error::SqliteFailure(code, Some(text)))
    }

    /// Adds all of it or nothing.
    ///
    /// # Errors
    /// Such as of a full disk.
    pub fn add(&mut self, amounts: &Amounts, pairs: &[Pair]) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut add = transaction.prepare(
                "INSERT INTO energy VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET
                   seconds = seconds + ?4, least_j = least_j + ?5, most_j = most_j + ?6",
            )?;
            for ((hour, of, kind), Amount { seconds, least_j, most_j }) in amounts {
                add.execute((hour, of, kind, seconds, least_j, most_j))?;
            }
            let mut add =
                transaction.prepare("INSERT INTO trial VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
            for Pair { unix_s, of, policy, found_w, ebb_w, found_s, ebb_s } in pairs {
                add.execute((unix_s, of, policy, found_w, ebb_w, found_s, ebb_s))?;
            }
        }
        transaction.commit()
    }

    /// What the trial says of the time from `first` up to, but without, `end`, in seconds.
    ///
    /// # Errors
    /// As of [`Self::read`].
    pub fn pairs(&self, first: f64, end: f64) -> Result<Vec<Pair>> {
        // One of the version before has none.
        if !self.0.table_exists(None, "trial")? {
            return Ok(Vec::new());
        }
        let mut query = self.0.prepare("SELECT * FROM trial WHERE unix_s >= ?1 AND unix_s < ?2")?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Pair {
                unix_s: row.get(0)?,
                of: row.get(1)?,
                policy: row.get(2)?,
                found_w: row.get(3)?,
                ebb_w: row.get(4)?,
                found_s: row.get(5)?,
                ebb_s: row.get(6)?,
            })
        };
        query.query_map((first, end), row)?.collect()
    }

    /// What there is of the hours from `first` up to, but without, `end`.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn amounts(&self, first: i64, end: i64) -> Result<Amounts> {
        let mut query = self.0.prepare("SELECT * FROM energy WHERE hour >= ?1 AND hour < ?2")?;
        let row = |row: &rusqlite::Row<'_>| {
            let amount = Amount { seconds: row.get(3)?, least_j: row.get(4)?, most_j: row.get(5)? };
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), amount))
        };
        query.query_map((first, end), row)?.collect()
    }
}

/// Whether what is in the file is no ledger any more.
pub fn is_broken(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Renames a broken ledger with all that belongs to it; says what it is called now.
///
/// # Errors
/// Where that is refused.
pub fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let with =
        |ending: &str| PathBuf::from(OsString::from_iter([file.as_os_str(), ending.as_ref()]));
    let aside = with(".broken");
    fs::rename(file, &aside)?;
    for ending in ["-wal", "-shm"] {
        // One that stayed would be taken for the new ledger's.
        match fs::rename(with(ending), with(&format!(".broken{ending}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(hour: i64, seconds: f64) -> Amounts {
        let amount = Amount { seconds, least_j: 100.0 * seconds, most_j: 100.0 * seconds };
        let of = |kind: &str| ((hour, "power".to_owned(), kind.to_owned()), amount);
        [of("measured"), of("modelled")].into()
    }

    fn seconds(ledger: &Ledger) -> Vec<f64> {
        ledger.amounts(i64::MIN, i64::MAX).unwrap().values().map(|one| one.seconds).collect()
    }

    #[test]
    fn amounts_of_an_hour_add_up_and_a_reader_sees_whole_commits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger");
        let mut ledger = Ledger::open(&file).unwrap();
        ledger.add(&amounts(7, 1.5), &[]).unwrap();
        let reader = Ledger::read(&file).unwrap();
        assert_eq!(seconds(&reader), [1.5, 1.5]);
        // One that reads on holds up nobody, and sees what it began with.
        reader.0.execute_batch("BEGIN").unwrap();
        assert_eq!(seconds(&reader), [1.5, 1.5]);
        ledger.add(&amounts(7, 2.0), &[]).unwrap();
        ledger.add(&amounts(8, 1.0), &[]).unwrap();
        assert_eq!(seconds(&reader), [1.5, 1.5]);
        reader.0.execute_batch("COMMIT").unwrap();
        assert_eq!(seconds(&reader), [3.5, 3.5, 1.0, 1.0]);
        assert_eq!(reader.amounts(8, 9).unwrap(), amounts(8, 1.0));
    }

    #[test]
    fn one_of_the_version_before_is_read_and_gets_the_table_of_the_trial() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger");
        let ledger = Ledger::open(&file).unwrap();
        ledger.0.execute_batch("DROP TABLE trial; PRAGMA user_version = 1").unwrap();
        assert_eq!(Ledger::read(&file).unwrap().pairs(0.0, 9e9).unwrap(), []);
        let (of, policy) = ("power".to_owned(), "pacer".to_owned());
        let (found_w, ebb_w, found_s, ebb_s) = (110.0, 100.0, Some(1e-4), None);
        let pair = Pair { unix_s: 7.0, of, policy, found_w, ebb_w, found_s, ebb_s };
        let mut ledger = Ledger::open(&file).unwrap();
        ledger.add(&amounts(7, 1.0), std::slice::from_ref(&pair)).unwrap();
        assert_eq!(ledger.pairs(7.0, 8.0).unwrap(), [pair]);
        assert_eq!(ledger.pairs(8.0, 9.0).unwrap(), []);
    }

    /// A power cut leaves any part of what was written last.
    #[test]
    fn one_that_was_cut_in_the_middle_of_a_write_has_the_commits_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger");
        let mut ledger = Ledger::open(&file).unwrap();
        let log = folder.path().join("ledger-wal");
        let mut ends = Vec::new();
        for hour in 0..4 {
            ledger.add(&amounts(hour, 1.0), &[]).unwrap();
            ends.push(fs::metadata(&log).unwrap().len() as usize);
        }
        assert!(ends.is_sorted_by(|one, next| one < next), "{ends:?}");
        let [data, log] = [&file, &log].map(|file| fs::read(file).unwrap());
        let (cut, cut_log) = (folder.path().join("cut"), folder.path().join("cut-wal"));
        let check = |log: &[u8], commits: usize| {
            let _ = fs::remove_file(folder.path().join("cut-shm"));
            fs::write(&cut, &data).unwrap();
            fs::write(&cut_log, log).unwrap();
            let mut ledger = Ledger::open(&cut).unwrap();
            assert_eq!(seconds(&ledger), vec![1.0; 2 * commits], "{} bytes", log.len());
            ledger.add(&amounts(9, 1.0), &[]).unwrap();
            assert_eq!(seconds(&ledger).len(), 2 * commits + 2);
        };
        for length in (ends[0]..=log.len()).step_by(709) {
            let commits = ends.iter().filter(|end| **end <= length).count();
            check(&log[..length], commits);
            // Garbage where the rest would be.
            check(&[&log[..length], &[0xa5; 5000][..]].concat(), commits);
        }
        check(&log, 4);
    }

    #[test]
    fn what_is_no_ledger_or_of_a_newer_version_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger");
        fs::write(&file, [b'x'; 5000]).unwrap();
        fs::write(folder.path().join("ledger-wal"), "x").unwrap();
        assert!(is_broken(&Ledger::open(&file).err().unwrap()));
        let aside = set_aside(&file).unwrap();
        assert!(aside.ends_with("ledger.broken") && aside.exists());
        let ledger = Ledger::open(&file).unwrap();
        ledger.0.pragma_update(None, "user_version", VERSION + 1).unwrap();
        drop(ledger);
        for error in [Ledger::open(&file).err(), Ledger::read(&file).err()].map(Option::unwrap) {
            assert!(!is_broken(&error) && error.to_string().contains("newer"), "{error}");
        }
        let missing = Ledger::read(&folder.path().join("none")).err().unwrap();
        assert!(!is_broken(&missing), "{missing}");
    }
}
