//! The processor cores that this process may use, and where they are.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

/// Processor cores that this process may use, by its affinity and its quota; hardware threads count
/// each. 1 when nobody says.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Cores of each NUMA node that threads which compute may fill, together at most [`cores`]. A core
/// counts once whatever number of hardware threads it has, since those share its arithmetic.
pub fn node_cores() -> Vec<usize> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let status = read("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let nodes = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = nodes.filter_map(|node| fs::read_to_string(node.path().join("cpulist")).ok());
    let core = |cpu: usize| {
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let siblings = read(&format!("{topology}/thread_siblings_list"))?;
        parse_list(&siblings).first().copied()
    };
    let nodes: Vec<Vec<usize>> = nodes.map(|list| parse_list(&list)).collect();
    count(&parse_list(allowed.unwrap_or_default()), &nodes, core, cores())
}

/// `core` gives the first hardware thread of the core that a hardware thread belongs to.
fn count(
    allowed: &[usize],
    nodes: &[Vec<usize>],
    core: impl Fn(usize) -> Option<usize>,
    most: usize,
) -> Vec<usize> {
    let cores_of = |node: &Vec<usize>| {
        let cpus = node.iter().filter(|cpu| allowed.contains(cpu));
        cpus.map(|&cpu| core(cpu).unwrap_or(cpu)).collect::<BTreeSet<_>>().len()
    };
    let mut counts: Vec<usize> = nodes.iter().map(cores_of).collect();
    if counts.iter().all(|&cores| cores == 0) {
        return vec![most];
    }
    // A quota says how much time there is, not on which cores: that of whole nodes is best.
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = most;
    for cores in &mut counts {
        *cores = left.min(*cores);
        left -= *cores;
    }
    counts.retain(|&cores| cores > 0);
    counts
}

/// `0-3,8` as Linux writes it: 0, 1, 2, 3, 8. What is no number is left out.
fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hardware_threads_are_read() {
        assert_eq!(parse_list("\t0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("\n"), Vec::<usize>::new());
    }

    #[test]
    fn a_core_counts_once_on_its_node() {
        // Two nodes of four cores with two hardware threads each, n and n + 8.
        let nodes = [parse_list("0-3,8-11"), parse_list("4-7,12-15")];
        let core = |cpu| Some(cpu % 8);
        let of = |allowed: &str, most| count(&parse_list(allowed), &nodes, core, most);
        assert_eq!(of("0-15", 16), [4, 4]);
        assert_eq!(of("0-3,8-11", 8), [4]);
        assert_eq!(of("2-4", 3), [2, 1]);
        // A quota of six cores' time.
        assert_eq!(of("0-15", 6), [4, 2]);
        assert_eq!(of("0-15", 3), [3]);
    }

    #[test]
    fn without_nodes_all_cores_are_on_one() {
        assert_eq!(count(&[0, 1], &[], |_| None, 2), [2]);
        assert_eq!(count(&[], &[vec![0, 1]], |_| None, 5), [5]);
        assert_eq!(count(&[0, 1], &[vec![0, 1]], |_| None, 2), [2]);
    }

    #[test]
    fn this_machine_has_no_more_cores_than_it_may_use() {
        let all: usize = node_cores().iter().sum();
        assert!((1..=cores()).contains(&all), "{all}");
    }
}
