//! A server ready for use: its profile, its topology and the devices it offers.

use anyhow::Result;

use ebb_policy::Topology;
use ebb_policy::units::Bytes;
use ebb_trace::generate::{BuildContext, WorkloadSpec};
use ebb_twin::Profile;

/// A server and what clients see of it.
pub struct Server {
    /// The server as data.
    pub profile: Profile,
    /// The server as policies see it.
    pub topology: Topology,
}

impl Server {
    /// A shipped profile by name, or the one in the file of that path.
    pub fn load(name: &str) -> Result<Self> {
        let profile = Profile::load(name)?;
        let topology = profile.topology();
        Ok(Self { profile, topology })
    }

    /// Devices and capacity of each to fold a trace onto.
    pub fn volumes(&self) -> (u16, Bytes) {
        self.profile.volumes()
    }

    /// What `spec` must know to be built for this server. Its devices are the volumes; an array
    /// is one, or as many equal ones as it has drives where `spec` wants to share them out.
    pub fn context(&self, spec: &WorkloadSpec, seed: u64) -> BuildContext {
        let (mut devices, Bytes(mut capacity_bytes)) = self.volumes();
        if devices == 1 && spec.parts(1).iter().any(|part| part.count == 0) {
            devices = self.profile.drives.count;
            capacity_bytes = (capacity_bytes / u64::from(devices)) >> 20 << 20;
        }
        BuildContext { devices, capacity_bytes, seed }
    }
}

#[cfg(test)]
mod tests {
    use ebb_trace::generate::BUILTIN;

    use super::*;

    #[test]
    fn every_builtin_workload_can_be_built_on_every_shipped_profile() {
        for name in Profile::names() {
            let server = Server::load(name).unwrap();
            // The smallest shares are an eighth of the drives; `eadc-lab` has two.
            if server.profile.drives.count < 8 {
                continue;
            }
            for builtin in BUILTIN {
                let spec = builtin.spec().with_maximum(1e5);
                let context = server.context(&spec, 1);
                assert!(context.capacity_bytes > 1 << 30, "{name}");
                let built = spec.build(&context);
                // Hundreds of GB do not fit on everything; what does not says so.
                let told = built.err().map(|error| error.to_string()).unwrap_or_default();
                let small = ["the drives are too small", "do not fit a drive"];
                let known = told.is_empty() || small.iter().any(|small| told.contains(small));
                assert!(known, "{} on {name}: {told}", builtin.name);
            }
        }
    }
}
