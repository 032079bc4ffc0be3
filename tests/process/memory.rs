//! What the process takes of the machine's memory.

use std::fs;

use super::lifecycle::ready;

/// A huge page has 2 MiB, and the system takes all of it for one byte that is used. It also puts
/// huge pages where the allocator has returned parts of them, so that memory grows without need.
/// The flag `hg` of a mapping asks for them.
#[test]
fn no_memory_is_asked_for_in_huge_pages() {
    let server = ready(&["--engine", "fake"]);
    let maps = fs::read_to_string(format!("/proc/{}/smaps", server.pid())).expect("it runs");
    let flags: Vec<&str> = maps.lines().filter_map(|line| line.strip_prefix("VmFlags: ")).collect();
    assert!(!flags.is_empty(), "{maps}");
    let huge = flags.iter().filter(|flags| flags.split(' ').any(|flag| flag == "hg")).count();
    assert_eq!(huge, 0, "of {} mappings", flags.len());
}
