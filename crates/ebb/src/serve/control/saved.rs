//! The configuration that a server would start from as it is now.

use anyhow::Result;
use ebb_nvme::tls::Security;
use ebb_target::controller::Port;
use serde_json::{Value, to_value};

use super::super::devices;
use super::{Control, Running, paths, replies, texts};

impl Running {
    fn toml(&self) -> Result<String> {
        let mut options = self.options.clone();
        let for_tls = |port: &Port| port.security == Some(Security::Required);
        let (tls, open): (Vec<_>, Vec<_>) = self.doors.ports().into_iter().partition(for_tls);
        let addresses = |ports: Vec<Port>| ports.into_iter().map(|port| port.address).collect();
        (options.tls_listen, options.listen) = (addresses(tls), addresses(open));
        let (mut all, mut last) = (Vec::new(), 0);
        for namespace in self.subsystem().namespaces() {
            let id = namespace.id;
            let text = self.namespaces.get(&id).map(|text| devices::again(text));
            let text = text.unwrap_or_default();
            all.push(if id == last + 1 { text } else { format!("{id}={text}") });
            last = id;
        }
        options.namespace = all;
        options.limit = self.limits.iter().map(|(host, one)| texts::of_limit(host, *one)).collect();
        options.ana = paths::options(self.subsystem());
        let mut table = toml::Table::try_from(&options)?;
        table.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        Ok(toml::to_string(&table)?)
    }
}

impl Control {
    pub(super) fn configuration(&self) -> Result<Value> {
        self.with(|running| {
            let path = self.file.as_ref().map(|path| path.display().to_string());
            let toml = format!(
                "# `ebb serve --config` starts from this; written by `ebb ctl save`.\n{}",
                running.toml()?
            );
            Ok(to_value(replies::Configuration { toml, path })?)
        })
    }
}
