//! Devices as text: `ram:256MiB`, `file:/srv/disk.img,create,size=10GiB`.

use std::fs::remove_file;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use ebb_policy::units::Bytes;

use super::{
    Device, Error, FileDevice, FileOptions, Geometry, Keeper, Null, Raid5, Raid5Options, Ram, raid5,
};

/// Bytes in a block where the text does not say.
pub const BLOCK: u32 = 4096;

/// A device to open. Every kind takes `block=512B|..|64KiB` (4 KiB where absent).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Spec {
    /// `null:SIZE`: reads zeros, forgets writes.
    Null(Geometry),
    /// `ram:SIZE[,huge][,lazy]`: memory of this process.
    Ram {
        /// Its size.
        geometry: Geometry,
        /// Ask for huge pages.
        huge: bool,
        /// Take it as it is written, not at start.
        lazy: bool,
    },
    /// `file:PATH[,size=SIZE][,create][,overwrite]`: a regular file or a block device.
    File(FileOptions),
    /// `raid5:MEMBER,MEMBER,MEMBER[,..]`: each member a path, or `ram:..` for a trial. Options:
    /// `create`, `size=SIZE` (of each member file that is created), `chunk=SIZE`, `journal=SLOTS`,
    /// `degraded`, `rebuild`, `rebuild-rate=SIZE` (per second), `lazy` (of `ram:` members).
    Raid5 {
        /// What it stands on.
        members: Vec<Spec>,
        /// How to make or assemble it.
        options: Raid5Options,
    },
}

/// A text split into its parts, to be used up.
struct Parts<'a> {
    text: &'a str,
    /// What stands first: a size or a path.
    head: &'a str,
    options: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn new(text: &'a str, rest: &'a str) -> Self {
        let mut options = rest.split(',');
        let head = options.next().unwrap_or_default();
        Self { text, head, options: options.collect() }
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::Spec { spec: self.text.to_owned(), reason: reason.into() }
    }

    /// Takes the option `name`, if it is there.
    fn flag(&mut self, name: &str) -> bool {
        let before = self.options.len();
        self.options.retain(|option| *option != name);
        self.options.len() < before
    }

    /// Takes the value of `name=`, if it is there.
    fn value<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Error> {
        let at = self
            .options
            .iter()
            .position(|option| option.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
        let Some(at) = at else { return Ok(None) };
        let option = self.options.remove(at);
        let value = option[name.len() + 1..].parse::<T>();
        value.map(Some).map_err(|error| self.error(format!("{name}: {error}")))
    }

    fn block(&mut self) -> Result<u32, Error> {
        let Some(Bytes(block)) = self.value("block")? else { return Ok(BLOCK) };
        if block.is_power_of_two() && (512..=64 << 10).contains(&block) {
            return Ok(block as u32);
        }
        Err(self.error("block: must be a power of two from 512 B to 64 KiB"))
    }

    fn geometry(&mut self) -> Result<Geometry, Error> {
        let block_size = self.block()?;
        let Bytes(size) = self
            .head
            .parse()
            .map_err(|error| self.error(format!("{error}, as in 'ram:256MiB'")))?;
        let blocks = size / u64::from(block_size);
        if blocks == 0 || size % u64::from(block_size) != 0 || size > 1 << 60 {
            let unit = Bytes(block_size.into());
            return Err(self.error(format!("the size must be a multiple of {unit} up to 1 EiB")));
        }
        Ok(Geometry { block_size, blocks })
    }

    fn file(&mut self) -> Result<FileOptions, Error> {
        if self.head.is_empty() {
            return Err(self.error("a path must follow, as in 'file:/srv/disk.img'"));
        }
        let size: Option<Bytes> = self.value("size")?;
        Ok(FileOptions {
            path: self.head.into(),
            size: size.map(|Bytes(size)| size),
            create: self.flag("create"),
            allocate: false,
            block_size: self.block()?,
            overwrite: self.flag("overwrite"),
        })
    }

    fn raid5(&mut self) -> Result<Spec, Error> {
        let standard = Raid5Options::default();
        let bytes = |value: Option<Bytes>| value.map(|Bytes(value)| value);
        let chunk = bytes(self.value("chunk")?).map_or(Ok(standard.chunk), u32::try_from);
        let chunk = chunk.map_err(|_| self.error("chunk: must be 1 MiB at most"))?;
        let options = Raid5Options {
            chunk,
            journal_slots: self.value("journal")?.unwrap_or(standard.journal_slots),
            create: self.flag("create"),
            degraded: self.flag("degraded"),
            rebuild: self.flag("rebuild"),
            rebuild_rate: bytes(self.value("rebuild-rate")?),
        };
        let (size, block_size) = (bytes(self.value("size")?), self.block()?);
        let lazy = if self.flag("lazy") { ",lazy" } else { "" };
        // What has a slash or a colon names a member; the rest are options, and unknown.
        let (named, rest) =
            self.options.iter().partition(|part| part.contains(['/', ':']) && !part.contains('='));
        self.options = rest;
        let named: Vec<&str> = named;
        let mut members = Vec::new();
        for name in std::iter::once(self.head).chain(named) {
            if name.starts_with("ram:") {
                members.push(format!("{name},block={block_size}B{lazy}").parse()?);
                continue;
            }
            let path = name.strip_prefix("file:").unwrap_or(name);
            if path.is_empty() {
                return Err(self.error("members must follow, as in 'raid5:/srv/a,/srv/b,/srv/c'"));
            }
            let create = size.is_some() && (options.create || options.rebuild);
            members.push(Spec::File(FileOptions {
                path: path.into(),
                size,
                create,
                allocate: true,
                block_size,
                overwrite: false,
            }));
        }
        Ok(Spec::Raid5 { members, options })
    }

    fn finish(self, spec: Spec, known: &str) -> Result<Spec, Error> {
        match self.options.first() {
            None => Ok(spec),
            Some(option) => Err(self.error(format!("no option '{option}'; there are {known}"))),
        }
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut parts = Parts::new(text, rest);
        match kind {
            "null" => {
                let geometry = parts.geometry()?;
                parts.finish(Self::Null(geometry), "block=SIZE")
            }
            "ram" => {
                let geometry = parts.geometry()?;
                let huge = parts.flag("huge");
                let lazy = parts.flag("lazy");
                parts.finish(Self::Ram { geometry, huge, lazy }, "block=SIZE, huge, lazy")
            }
            "file" => {
                let file = parts.file()?;
                parts.finish(Self::File(file), "block=SIZE, size=SIZE, create, overwrite")
            }
            "raid5" => {
                let spec = parts.raid5()?;
                let known = "block=SIZE, chunk=SIZE, create, degraded, journal=SLOTS, lazy, \
                             rebuild, rebuild-rate=SIZE, size=SIZE";
                parts.finish(spec, known)
            }
            _ => Err(parts.error(
                "must start with a kind: null:SIZE, ram:SIZE, file:PATH or raid5:PATH,PATH,PATH",
            )),
        }
    }
}

impl Spec {
    /// Memory in bytes that opening it takes at once, the slow part of starting.
    #[must_use]
    pub fn memory(&self) -> u64 {
        match self {
            Self::Ram { geometry, lazy: false, .. } => geometry.bytes(),
            Self::Raid5 { members, .. } => {
                members.iter().map(Self::memory).fold(0, u64::saturating_add)
            }
            _ => 0,
        }
    }
}

/// Opens what `spec` describes.
///
/// # Errors
/// Names the file or device, what is wrong with it and what to do.
pub fn open(spec: &Spec) -> Result<Arc<dyn Device>, Error> {
    open_watched(spec, &|_| {})
}

/// The same; calls `progress` with more and more bytes, up to [`Spec::memory`] in all, from
/// several threads.
///
/// # Errors
/// As of [`open`].
pub fn open_watched(
    spec: &Spec,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Arc<dyn Device>, Error> {
    Ok(match spec {
        Spec::Null(geometry) => Arc::new(Null::new(*geometry)),
        Spec::Ram { geometry, huge, lazy } => {
            let mut ram = Ram::new(*geometry, *huge)?;
            if !lazy {
                ram.populate(progress)?;
            }
            Arc::new(ram)
        }
        Spec::File(options) => {
            let file: Arc<dyn Device> = Arc::new(FileDevice::open(options)?);
            if !options.overwrite {
                raid5::refuse_member(&options.path, &file)?;
            }
            file
        }
        Spec::Raid5 { members, options } => {
            let make = |members| Raid5::open(members, options);
            Arc::new(with_members(members, options, progress, make)?)
        }
    })
}

/// An array with its keeper in the caller's hands, for work on it that nobody else shares.
///
/// # Errors
/// As of [`open`]; or it is no array.
pub fn open_kept(spec: &Spec) -> Result<(Raid5, Keeper), Error> {
    let Spec::Raid5 { members, options } = spec else {
        return Err(Error::unfit("the device", "is no array; write raid5: and all its members"));
    };
    with_members(members, options, &|_| {}, |members| Raid5::open_kept(members, options))
}

/// Members by name.
type Members = Vec<(String, Arc<dyn Device>)>;

/// Opens the members and makes an array of them. Where that fails, files created for it go again.
fn with_members<T>(
    members: &[Spec],
    options: &Raid5Options,
    progress: &(dyn Fn(u64) + Sync),
    make: impl FnOnce(Members) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut created = Vec::<PathBuf>::new();
    let mut member = |(index, spec): (usize, &Spec)| {
        let Spec::File(file) = spec else {
            return Ok((format!("raid5 member {}", index + 1), open_watched(spec, progress)?));
        };
        let device = FileDevice::open(file)?;
        created.extend(device.created().map(Into::into));
        Ok((file.path.display().to_string(), Arc::new(device) as Arc<dyn Device>))
    };
    // A drive that died has no file any more: that is what degraded is for.
    let is_gone = |spec: &Spec| match spec {
        Spec::File(file) => options.degraded && !file.path.exists() && !file.create,
        _ => false,
    };
    let present = members.iter().enumerate().filter(|(_, spec)| !is_gone(spec));
    let made = present.map(&mut member).collect::<Result<_, _>>().and_then(make);
    made.inspect_err(|_| created.iter().for_each(|path| _ = remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_devices() {
        let geometry = Geometry { block_size: 4096, blocks: 65_536 };
        assert_eq!("null:256MiB".parse::<Spec>().unwrap(), Spec::Null(geometry));
        let geometry = Geometry { block_size: 512, blocks: 2048 };
        let ram = "ram:1MiB,huge,block=512B".parse::<Spec>().unwrap();
        assert_eq!(ram, Spec::Ram { geometry, huge: true, lazy: false });
        assert_eq!(open(&ram).unwrap().geometry(), geometry);
    }

    #[test]
    fn an_array_names_its_members() {
        let text = "raid5:/srv/a,file:/srv/b,ram:64MiB,chunk=16KiB,degraded,rebuild-rate=1MiB";
        let Spec::Raid5 { members, options } = text.parse::<Spec>().unwrap() else {
            panic!("not an array")
        };
        let geometry = Geometry { block_size: 4096, blocks: 16_384 };
        assert_eq!(members[2], Spec::Ram { geometry, huge: false, lazy: false });
        let paths = members[..2].iter().map(|member| match member {
            Spec::File(file) => file.path.to_str().unwrap(),
            _ => panic!("not a file"),
        });
        assert!(paths.eq(["/srv/a", "/srv/b"]));
        assert_eq!((options.chunk, options.rebuild_rate), (16_384, Some(1 << 20)));
        assert!(options.degraded && !options.create && !options.rebuild);
    }

    #[test]
    fn wrong_texts_say_what_to_write() {
        for (text, part) in [
            ("ram", "as in 'ram:256MiB'"),
            ("ram:5KiB", "multiple of 4 KiB"),
            ("ram:0 B", "multiple of 4 KiB"),
            ("null:1MiB,huge", "no option 'huge'; there are block=SIZE"),
            ("ram:1MiB,block=1000B", "power of two"),
            ("disk:1MiB", "must start with a kind"),
            ("file:", "a path must follow"),
            ("raid5:", "members must follow"),
            ("raid5:/a,/b,/c,fast", "no option 'fast'"),
            ("raid5:/a,/b,/c,chunk=8GiB", "1 MiB at most"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(part), "{error}");
        }
    }
}
