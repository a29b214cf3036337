//! How many connections fit into the limit of open files, beside everything else that is one.

use crate::agent::open_files;
use crate::config::Config;

/// Clients that are being told that there is no place for them.
pub const REFUSALS_MAX: usize = 32;
/// The runtime, the log, the locks, the socket, the writer and its files, and those of whoever leaves.
const BASE: usize = 192;
/// Each connection that reads the database has it open, with its log and its index.
const PER_READER: usize = 3;
/// Three pipes, the shim's socket, the process itself, its workspace, its cgroup and the socket of its tools; and a file or a
/// terminal now and then.
const PER_PROCESS: usize = 9;
/// Of what is left for clients and processes, clients have at least this part: nobody needs a thousand agents that cannot be
/// asked for anything.
const SHARE_OF_CLIENTS: usize = 4;
/// With fewer than these a daemon would serve nobody.
const CONNECTIONS_MIN: usize = 8;

#[derive(Debug, thiserror::Error)]
#[error(
    "the limit of {limit} open files is too low: acpd needs at least {needed}; raise it (`ulimit -n`, systemd: \
        LimitNOFILE=)"
)]
pub struct TooFewFiles {
    limit: usize,
    needed: usize,
}

/// Lowers `control.connections` to what fits, and tells so. When not even a few fit, it is an error.
pub fn fit_connections(config: &mut Config) -> Result<Option<String>, TooFewFiles> {
    let Some(limit) = open_files::limit().and_then(|limit| usize::try_from(limit).ok()) else { return Ok(None) };
    fit(config, limit)
}

fn fit(config: &mut Config, limit: usize) -> Result<Option<String>, TooFewFiles> {
    let readers = PER_READER.saturating_mul(usize::try_from(config.store.read_connections).unwrap_or(usize::MAX));
    let own = readers.saturating_add(BASE + REFUSALS_MAX);
    let left = limit.saturating_sub(own);
    let least = left / SHARE_OF_CLIENTS;
    if least < CONNECTIONS_MIN {
        return Err(TooFewFiles { limit, needed: own.saturating_add(CONNECTIONS_MIN * SHARE_OF_CLIENTS) });
    }
    let processes = config.limits.processes;
    let room = left.saturating_sub(processes.saturating_mul(PER_PROCESS)).max(least);
    let wanted = config.control.connections;
    if wanted <= room {
        return Ok(None);
    }
    config.control.connections = room;
    Ok(Some(format!(
        "reduced control.connections to {room} from {wanted}: only {limit} files may be open, and {processes} \
            processes (limits.processes) need some of them; raise the limit (`ulimit -n`, systemd: LimitNOFILE=), or \
            lower the setting"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_below_the_usual_limit_and_are_lowered_below_a_small_one() {
        let mut config = Config::default();
        assert_eq!(fit(&mut config, 1024).unwrap(), None);
        assert_eq!(config, Config::default());
        let told = fit(&mut config, 512).unwrap().unwrap();
        assert!(told.contains("from 256"), "{told}");
        let lowered = config.control.connections;
        assert!((CONNECTIONS_MIN..256).contains(&lowered), "{lowered}");
        assert_eq!(fit(&mut config, 512).unwrap(), None, "once is enough");
        config.limits.processes = 100_000;
        fit(&mut config, 1024).unwrap();
        assert!(config.control.connections > 100, "clients have their share, however many processes there may be");
        let refused = fit(&mut config, 256).unwrap_err().to_string();
        assert!(refused.contains("LimitNOFILE"), "{refused}");
    }
}
