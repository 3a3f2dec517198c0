//! What everything was set to before Ebb came: on disk before the first write, and not replaced by
//! a later start, whose values would be Ebb's own.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::act::knob::Knob;
use crate::act::owned::{self, StateError};
use crate::act::place::{CGROUPS, Place};
use crate::act::tasks::Bound;
use crate::sys::{Absent, Sys, cpus};

/// Version of the file, and the oldest that is read: 1 had no disks, 2 did not know what was set.
const SCHEMA: u32 = 3;
const OLDEST: u32 = 1;
const NEWER: u32 = SCHEMA + 1;
/// Its name in the state folder.
const FILE: &str = "originals.json";

/// What is left in a place when Ebb ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Leave {
    /// What was found.
    #[default]
    Restore,
    /// What can do no harm: all cores, no caps, full fans.
    Safe,
    /// What Ebb set last.
    Keep,
}

/// One place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Original {
    /// Where.
    pub place: Place,
    /// What was found.
    pub found: String,
    /// What can do no harm there.
    pub safe: String,
    /// What to leave.
    pub leave: Leave,
    /// Whether Ebb may have set it, or one like it. Other programs' settings are never overwritten
    /// where it has not.
    #[serde(default = "unknown")]
    pub touched: bool,
}

/// Of a file that does not tell.
fn unknown() -> bool {
    true
}

impl Original {
    /// Of a place that is to be left as it is now, by its `knob`.
    ///
    /// # Errors
    /// Why it could not be set back.
    pub fn of(place: Place, knob: Result<Knob, Absent>, sys: &Sys) -> Result<Self, Absent> {
        let mut knob = knob?;
        knob.settable(sys)?;
        let found = knob.read(sys)?;
        let safe = found.clone();
        let this = Self { place, found, safe, leave: Leave::Restore, touched: false };
        let failed = |error| Absent::Failed { path: this.place.to_string().into(), error };
        this.check().map_err(failed)?;
        Ok(this)
    }

    /// Whether it can be set back.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self) -> Result<(), String> {
        let Self { place, found, safe, .. } = self;
        if !place.is_listed() {
            return Err("it is no place that Ebb sets".to_owned());
        }
        match [found, safe].into_iter().find(|value| !place.can_be(value)) {
            Some(value) => {
                Err(format!("it cannot be {:?}", value.chars().take(40).collect::<String>()))
            }
            None => Ok(()),
        }
    }

    /// Whether an end writes it: not what Ebb has not set, unless the operator wants it `safe`.
    #[must_use]
    pub fn is_written_at_end(&self, leave: Option<Leave>) -> bool {
        self.touched || leave.unwrap_or(self.leave) == Leave::Safe
    }

    /// What to set it to at the end; `None` to leave it alone.
    #[must_use]
    pub fn last(&self, leave: Option<Leave>) -> Option<&str> {
        match leave.unwrap_or(self.leave) {
            Leave::Restore => Some(&self.found),
            Leave::Safe => Some(&self.safe),
            Leave::Keep => None,
        }
    }
}

/// All places, in the order in which they are set back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Originals {
    schema: u32,
    /// The start of the machine in which they were found (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// Each.
    pub originals: Vec<Original>,
    /// Tasks that are to be bound to their CPUs again once no partition keeps them from these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Bound>,
}

impl Originals {
    /// What a file with them says.
    ///
    /// # Errors
    /// What of it is not what Ebb writes.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let schema = schema(text)?;
        if !(OLDEST..=SCHEMA).contains(&schema) {
            return Err(format!("has schema {schema}, this version reads {OLDEST} to {SCHEMA}"));
        }
        let mut all: Self = match schema {
            1 => serde_json::from_slice(text)
                .map(without_partitions)
                .and_then(serde_json::from_value),
            _ => serde_json::from_slice(text),
        }
        .map_err(|error| error.to_string())?;
        all.schema = SCHEMA;
        if !all.has_each_once() {
            return Err("names a place twice".to_owned());
        }
        match all.tasks.iter().find(|task| cpus(&task.cpus).is_none() || cpus(&task.now).is_none())
        {
            Some(task) => Err(format!("the CPUs of task {} are no list of CPUs", task.task)),
            None => Ok(all),
        }
    }

    fn has_each_once(&self) -> bool {
        let mut places = BTreeSet::new();
        self.originals.iter().all(|original| places.insert(&original.place))
    }
}

/// Which version wrote it.
fn schema(text: &[u8]) -> Result<u32, String> {
    #[derive(Deserialize)]
    struct Schema {
        schema: u32,
    }
    let read: Result<Schema, _> = serde_json::from_slice(text);
    read.map(|read| read.schema).map_err(|error| error.to_string())
}

/// A file of version 1, whose partitions of CPUs are nothing that is set any more, for Linux can
/// crash then: they are named by their files, and the operator has to see to them.
fn without_partitions(mut all: Value) -> Value {
    let originals = all.get_mut("originals").and_then(Value::as_array_mut).into_iter().flatten();
    for place in originals.filter_map(|original| original.get_mut("place")) {
        if place["kind"] == "partition" {
            let group = place["group"].as_str().unwrap_or_default();
            let path = format!("{CGROUPS}/{group}/cpuset.cpus.partition");
            *place = json!({"kind": "file", "path": path});
        }
    }
    all
}

/// The folder with the originals. Who changes it has the machine's [`Lock`](crate::Lock).
#[derive(Debug, Clone)]
pub struct State {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

impl State {
    /// Opens the folder `path`, which is made if it is not there.
    ///
    /// # Errors
    /// Where it cannot be used, or others may write in it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let folder = owned::make(path)?;
        let _ = owned::discard(&folder, FILE);
        Ok(Self { path: path.to_owned(), folder: Arc::new(folder) })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was saved; `None` where there is nothing to set back.
    ///
    /// # Errors
    /// Where the file cannot be read, or is not what Ebb writes.
    pub fn load(&self) -> Result<Option<Originals>, StateError> {
        let path = self.path.join(FILE);
        let Some(text) = owned::read(&self.folder, &self.path, FILE)? else { return Ok(None) };
        match (Originals::parse(&text), schema(&text)) {
            (Err(_), Ok(schema @ NEWER..)) => Err(StateError::Newer { path, schema }),
            (read, _) => read.map(Some).map_err(|reason| StateError::Broken { path, reason }),
        }
    }

    /// Puts `found` on disk beside what is there already, which stays as it is.
    /// Returns what is on disk now. Nothing may be set before this has returned.
    ///
    /// # Errors
    /// Where it cannot be written: the disk is full, say. What was there is still there.
    pub fn save(&self, boot: &str, found: Vec<Original>) -> Result<Originals, StateError> {
        let mut all = self.load()?.unwrap_or_default();
        // Of an earlier start only what outlives one is still to be set back.
        if !all.boot.is_empty() && !boot.is_empty() && all.boot != boot {
            all.originals.retain(|original| original.place.survives_reboot());
            all.tasks.clear();
        }
        all.schema = SCHEMA;
        if !boot.is_empty() {
            all.boot = boot.to_owned();
        }
        for original in found {
            assert!(original.place.is_listed(), "{} is saved and not on the list", original.place);
            match all.originals.iter_mut().find(|known| known.place == original.place) {
                // What is to be left there is today's choice.
                Some(known) => known.leave = original.leave,
                None => all.originals.push(original),
            }
        }
        self.write(&all)?;
        Ok(all)
    }

    /// Puts `place` on disk as it is `now`, in place of what was found there before; without, it is
    /// somebody else's, and not on disk any more: no end sets it back.
    ///
    /// # Errors
    /// Where it cannot be written; what was there is still there.
    pub fn save_one(
        &self,
        boot: &str,
        place: &Place,
        now: Option<&Original>,
    ) -> Result<(), StateError> {
        let mut all = self.load()?.unwrap_or_default();
        (all.schema, all.boot) = (SCHEMA, boot.to_owned());
        match (all.originals.iter().position(|known| known.place == *place), now) {
            (Some(at), Some(now)) => all.originals[at] = now.clone(),
            (None, Some(now)) => all.originals.push(now.clone()),
            (Some(at), None) => drop(all.originals.remove(at)),
            (None, None) => return Ok(()),
        }
        if all.tasks.is_empty() { self.keep(&all) } else { self.write(&all) }
    }

    /// Puts on disk which places have been `touched`.
    ///
    /// # Errors
    /// Where it cannot be written; what was there is still there.
    pub fn mark(&self, touched: impl Fn(&Original) -> bool) -> Result<(), StateError> {
        let Some(mut all) = self.load()? else { return Ok(()) };
        for original in &mut all.originals {
            original.touched = touched(original);
        }
        self.write(&all)
    }

    /// Puts `tasks` on disk in place of those there.
    ///
    /// # Errors
    /// Where they cannot be written; what was there is still there.
    pub fn save_tasks(&self, tasks: &[Bound]) -> Result<(), StateError> {
        let mut all = self.load()?.unwrap_or_default();
        (all.schema, all.tasks) = (SCHEMA, tasks.to_vec());
        self.write(&all)
    }

    /// Forgets a place that is not there any more.
    ///
    /// # Errors
    /// Where that cannot be written; what was there is still there.
    pub fn forget(&self, place: &Place) -> Result<(), StateError> {
        let Some(mut all) = self.load()? else { return Ok(()) };
        all.originals.retain(|original| original.place != *place);
        self.write(&all)
    }

    /// Gives up those of a place or a drive that is `named` so; which they were.
    ///
    /// # Errors
    /// Where they cannot be read or written.
    pub fn give_up(&self, named: &str) -> Result<Vec<Place>, StateError> {
        let mut all = self.load()?.unwrap_or_default();
        let (gone, kept) = all.originals.into_iter().partition(|one| one.place.is_named(named));
        all.originals = kept;
        let gone: Vec<Original> = gone;
        if !gone.is_empty() {
            self.keep(&all)?;
        }
        Ok(gone.into_iter().map(|original| original.place).collect())
    }

    /// Keeps only what could not be set back; without any, the file goes.
    ///
    /// # Errors
    /// Where it cannot be written or removed.
    pub fn keep(&self, all: &Originals) -> Result<(), StateError> {
        if !all.originals.is_empty() {
            return self.write(all);
        }
        let path = self.path.join(FILE);
        owned::remove(&self.folder, FILE).map_err(|source| StateError::Io { path, source })
    }

    /// What else was put beside it as `name`; nothing where others may write it.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<Vec<u8>> {
        owned::read(&self.folder, &self.path, name).ok().flatten()
    }

    /// Puts `text` beside it as `name`.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn put_other(&self, name: &str, text: &str) -> std::io::Result<()> {
        owned::put(&self.folder, name, text.as_bytes())
    }

    fn write(&self, all: &Originals) -> Result<(), StateError> {
        assert_eq!(all.schema, SCHEMA, "what is saved is of this version");
        assert!(all.has_each_once(), "what is saved could not be read");
        let path = self.path.join(FILE);
        // At once: the writer of JSON writes each of its words.
        let text = serde_json::to_string_pretty(all).map_err(std::io::Error::from);
        let put = |text: String| owned::put(&self.folder, FILE, (text + "\n").as_bytes());
        text.and_then(put).map_err(|source| StateError::Io { path, source })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn original(group: &str, found: &str) -> Original {
        Original {
            place: Place::File { path: format!("sys/fs/cgroup/{group}/cpu.weight") },
            found: found.to_owned(),
            safe: "100".to_owned(),
            leave: Leave::Restore,
            touched: true,
        }
    }

    fn chip(found: &str) -> Original {
        let [chip, device, file] = ["nct6798", "nct6775.656", "pwm1_enable"].map(str::to_owned);
        Original { place: Place::Chip { chip, device, file }, ..original("", found) }
    }

    #[test]
    fn a_later_start_does_not_replace_what_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        assert_eq!(state.load().unwrap(), None);
        state.save("a", vec![original("x", "1")]).unwrap();
        // Killed, started again: what it finds now is its own.
        let found = vec![original("x", "7"), original("y", "2")];
        let all = state.save("a", found).unwrap();
        assert_eq!(all.originals, [original("x", "1"), original("y", "2")]);
        assert_eq!(state.load().unwrap(), Some(all));
    }

    #[test]
    fn what_a_restart_has_reset_is_found_anew() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        state.save("a", vec![original("x", "1"), chip("2")]).unwrap();
        let all = state.save("b", vec![original("x", "3"), chip("1")]).unwrap();
        assert_eq!(all.originals, [chip("2"), original("x", "3")]);
    }

    #[test]
    fn what_a_kill_left_half_written_goes() {
        let folder = tempfile::tempdir().unwrap();
        State::open(folder.path()).unwrap().save("a", vec![original("x", "1")]).unwrap();
        fs::write(folder.path().join("originals.json.new"), "{\"sche").unwrap();
        let state = State::open(folder.path()).unwrap();
        assert!(!folder.path().join("originals.json.new").exists());
        assert_eq!(state.load().unwrap().unwrap().originals, [original("x", "1")]);
    }

    #[test]
    fn who_may_write_it_may_not_be_just_anybody() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (state, link) = (folder.path().join("state"), folder.path().join("link"));
        State::open(&state).unwrap().save("a", vec![original("x", "1")]).unwrap();
        let file = state.join(FILE);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&file)), (0o700, 0o600));
        let says = |path: &Path| {
            let loaded = State::open(path).and_then(|state| state.load());
            loaded.map(|_| ()).map_err(|error| error.to_string())
        };
        for (path, mine) in [(&state, 0o700), (&file, 0o600)] {
            for wrong in [0o777, 0o702] {
                fs::set_permissions(path, PermissionsExt::from_mode(wrong)).unwrap();
                let error = says(&state).unwrap_err();
                let remedy = format!("chmod go-w {}", path.display());
                assert!(error.contains("others may write") && error.ends_with(&remedy), "{error}");
            }
            fs::set_permissions(path, PermissionsExt::from_mode(mine)).unwrap();
            // Only root can give it away, for this test.
            if rustix::process::geteuid().is_root() {
                chown(path, Some(65_534), None).unwrap();
                assert!(says(&state).unwrap_err().contains("chown 0 "));
                chown(path, Some(0), None).unwrap();
            }
        }
        symlink(&state, &link).unwrap();
        for path in [link.clone(), link.join(""), link.join(".")] {
            assert!(says(&path).unwrap_err().contains("it is a link"), "{}", path.display());
        }
        fs::rename(&file, folder.path().join("other")).unwrap();
        symlink("../other", &file).unwrap();
        assert!(says(&state).unwrap_err().contains("originals.json"));
        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(says(&state).unwrap_err().contains("not a regular file"));
        fs::remove_file(&file).unwrap();
        fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(says(&state).unwrap_err().contains("longer than"));
    }

    const PARTITION: &str = r#"{"place": {"kind": "partition", "group": "ebb-parked"}, "found": "",
        "safe": "", "leave": "restore"}"#;

    #[test]
    fn what_an_older_version_has_saved_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let text = r#"{"schema": 1, "boot": "a", "originals": [{"place": {"kind": "chip",
            "chip": "nct6798", "device": "nct6775.656", "file": "pwm1_enable"}, "found": "2",
            "safe": "100", "leave": "restore"}]}"#;
        fs::write(folder.path().join(FILE), text).unwrap();
        assert_eq!(state.load().unwrap().unwrap().originals, [chip("2")]);
        // What is not set any more keeps nothing else from being set back.
        let parked = text.replace("\"originals\": [", &format!("\"originals\": [{PARTITION}, "));
        let all = Originals::parse(parked.as_bytes()).unwrap();
        assert_eq!(all.originals[1], chip("2"));
        assert!(all.originals[0].check().is_err());
        assert!(all.originals[0].place.to_string().ends_with("/ebb-parked/cpuset.cpus.partition"));
        state.save("a", vec![original("x", "1")]).unwrap();
        assert!(fs::read_to_string(folder.path().join(FILE)).unwrap().contains("\"schema\": 3"));
        assert_eq!(state.load().unwrap().unwrap().originals, [chip("2"), original("x", "1")]);
    }

    #[test]
    #[should_panic(expected = "not on the list")]
    fn what_is_not_on_the_list_is_not_saved() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::File { path: "etc/passwd".to_owned() };
        let original = Original { place, ..original("x", "1") };
        let _ = State::open(folder.path()).unwrap().save("a", vec![original]);
    }

    #[test]
    fn what_does_not_come_back_is_given_up_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let drive = Place::PowerState { drive: "KCD8 X3F0".to_owned() };
        let capped = Original { place: drive.clone(), ..original("", "0") };
        state.save("a", vec![original("x", "1"), chip("2"), capped]).unwrap();
        assert_eq!(state.give_up("KCD8").unwrap(), []);
        assert_eq!(state.give_up("KCD8 X3F0").unwrap(), [drive]);
        assert_eq!(state.give_up("nct6798").unwrap(), [chip("2").place]);
        let weight = original("x", "1").place;
        assert_eq!(state.give_up(&weight.to_string()).unwrap(), [weight]);
        assert_eq!(state.load().unwrap(), None);
    }

    proptest! {
        /// Cut short, or with any byte another: refused, or a file with places.
        #[test]
        fn a_damaged_file_is_read_or_refused(
            cut in any::<prop::sample::Index>(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let all = Originals {
                schema: SCHEMA,
                boot: "a".to_owned(),
                originals: vec![original("x", "1"), chip("2")],
                tasks: Vec::new(),
            };
            let mut text = serde_json::to_vec(&all).unwrap();
            for (at, byte) in changes {
                let at = at.index(text.len());
                text[at] = byte;
            }
            let end = cut.index(text.len());
            prop_assert!(Originals::parse(&text[..end]).is_err(), "cut");
            if let Ok(all) = Originals::parse(&text) {
                let back = serde_json::to_vec(&all).unwrap();
                prop_assert_eq!(Originals::parse(&back), Ok(all));
            }
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let bound = r#"{"task": 1, "start": 1, "cpus": "x", "now": "", "kernel": false}"#;
        for text in [
            "",
            "{",
            r#"{"schema": 9, "boot": "", "originals": []}"#,
            r#"{"schema": 2, "boot": "", "originals": [], "extra": 1}"#,
            r#"{"schema": 2, "boot": "", "boot": "", "originals": []}"#,
            &format!(r#"{{"schema": 2, "boot": "", "originals": [], "tasks": [{bound}]}}"#),
            "[1]",
        ] {
            fs::write(folder.path().join(FILE), text).unwrap();
            let error = state.save("a", vec![original("x", "1")]).unwrap_err().to_string();
            assert!(error.contains("originals.json: "), "{error}");
            // What a newer version knows is not lost.
            let newer = text.contains("\"schema\": 9");
            assert_eq!(error.contains("restore with that version"), newer, "{error}");
            assert_eq!(error.contains("remove the file"), !newer, "{error}");
            assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), text);
        }
    }

    /// A sandbox may hide which start of the machine it is. That is no reason to take it for a
    /// later one, which would have reset what is kept here.
    #[test]
    fn a_start_that_nobody_knows_is_no_other_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        for (boot, group, known, count) in
            [("", "w", "", 1), ("a", "x", "a", 2), ("", "y", "a", 3), ("b", "z", "b", 1)]
        {
            let all = state.save(boot, vec![original(group, "1")]).unwrap();
            assert_eq!((&*all.boot, all.originals.len()), (known, count), "{boot}");
        }
    }

    #[test]
    fn when_all_is_set_back_the_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let mut all = state.save("a", vec![original("x", "1"), original("y", "2")]).unwrap();
        all.originals.pop();
        state.keep(&all).unwrap();
        assert_eq!(state.load().unwrap(), Some(all.clone()));
        all.originals.clear();
        state.keep(&all).unwrap();
        state.keep(&all).unwrap();
        assert_eq!(state.load().unwrap(), None);
    }
}
