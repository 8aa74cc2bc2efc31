//! The limit on open files of the process, and how many of them may be connections.
//!
//! Connections are file descriptors. So are the files of the store, the log, and the connections of workers and webhooks. A process without
//! free descriptors can neither accept a health check nor write a task. Therefore the limit on connections is the limit of the operating
//! system minus a reserve.

use std::io;

/// The bounds of the reserve.
const RESERVE: std::ops::RangeInclusive<usize> = 64..=1024;

/// How many connections a server accepts, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The connections that it accepts.
    pub(crate) connections: usize,
    /// The connections that were configured.
    configured: usize,
    /// The descriptors of the process and the reserve. `None` if they are not limited.
    descriptors: Option<(usize, usize)>,
}

impl Budget {
    /// The budget under the current limit.
    pub(crate) fn now(configured: usize) -> Self {
        Self::of(configured, soft_limit())
    }

    fn of(configured: usize, soft: Option<usize>) -> Self {
        let descriptors = soft.map(|soft| (soft, reserve(soft)));
        let connections = descriptors.map_or(configured, |(soft, reserve)| configured.min(soft - reserve));
        Self { connections: connections.max(1), configured, descriptors }
    }

    /// Logs how many connections are accepted.
    pub(crate) fn log(&self) {
        let Self { connections, configured, descriptors } = *self;
        let (files, reserved) = descriptors.unzip();
        if connections < configured {
            tracing::warn!(
                connections,
                configured,
                files,
                reserved,
                "the limit on open files allows fewer connections than configured; raise it (`ulimit -n`, `LimitNOFILE=`)"
            );
        } else {
            tracing::info!(connections, files, reserved, "the limit on connections");
        }
    }
}

/// How many descriptors are reserved.
fn reserve(soft: usize) -> usize {
    (soft / 4).clamp(*RESERVE.start(), *RESERVE.end()).min(soft / 2)
}

/// Raises the soft limit on open files of this process (`RLIMIT_NOFILE`) to the hard limit. Each connection needs a file, and the soft limit
/// is often 1,024.
///
/// `attache serve` calls this when it starts. A [`Server`](crate::Server) does not, because the limit belongs to the whole process and is
/// inherited by the programs that it starts: call this at the beginning of `main`. A server never accepts more connections than the soft
/// limit allows when it starts, minus a reserve.
///
/// It does nothing on systems without such a limit.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// attache_server::raise_file_limit()?;
/// attache_server::Server::echo().bind("127.0.0.1:8080").run().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(unix)]
pub fn raise_file_limit() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// macOS reports no hard limit but accepts at most this value.
    const OPEN_MAX: u64 = 10_240;

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let Some(soft) = current else { return Ok(()) };
    if maximum.is_some_and(|hard| hard <= soft) {
        return Ok(());
    }
    let raise = |to: Option<u64>| setrlimit(Resource::Nofile, Rlimit { current: to, maximum });
    let raised = match raise(maximum) {
        Err(_) if soft < OPEN_MAX && maximum.is_none_or(|hard| hard > OPEN_MAX) => raise(Some(OPEN_MAX)),
        raised => raised,
    };
    raised.map_err(io::Error::from)
}

/// It does nothing on systems without such a limit.
#[cfg(not(unix))]
pub fn raise_file_limit() -> io::Result<()> {
    Ok(())
}

/// The soft limit on open files.
#[cfg(unix)]
fn soft_limit() -> Option<usize> {
    use rustix::process::{Resource, getrlimit};

    getrlimit(Resource::Nofile).current.map(|soft| usize::try_from(soft).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn soft_limit() -> Option<usize> {
    None
}

/// Whether accepting failed because the process or the machine is out of descriptors or memory.
#[cfg(unix)]
pub(crate) fn are_used_up(error: &io::Error) -> bool {
    use rustix::io::Errno;

    let used_up = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| used_up.contains(&errno))
}

#[cfg(not(unix))]
pub(crate) fn are_used_up(_: &io::Error) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_connections_leaves_a_reserve_of_descriptors() {
        let connections = |configured, soft| Budget::of(configured, Some(soft)).connections;
        assert_eq!(connections(20_000, 1_000_000), 20_000);
        assert_eq!(connections(20_000, 21_024), 20_000);
        assert_eq!(connections(20_000, 21_023), 19_999);
        assert_eq!(connections(20_000, 1024), 768);
        assert_eq!(connections(20_000, 256), 192);
        assert_eq!(connections(100, 256), 100);
        assert_eq!(Budget::of(20_000, None).connections, 20_000);
    }

    #[test]
    fn a_server_with_hardly_any_descriptors_still_accepts_connections() {
        for soft in 0..128 {
            let Budget { connections, .. } = Budget::of(20_000, Some(soft));
            assert!(connections >= 1 && connections <= (soft / 2).max(1) + 1, "{soft}: {connections}");
        }
    }
}
