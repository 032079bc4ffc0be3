//! Files that the process has mapped into its memory.

use std::path::Path;

use procfs::ProcResult;
use procfs::process::{MMapPath, MemoryMap, Process};
use rustix::mm::{Advice, madvise};

/// Takes the pages of all files in `folder` out of this process, where they are mapped and nobody
/// wrote to them. Whoever reads such a page later gets it from the system's cache, or from the disk
/// when the system needed the memory meanwhile.
///
/// # Errors
/// When the system does not tell what is mapped, or does not take the pages.
pub(super) fn give_back(folder: &Path) -> ProcResult<()> {
    // The system tells files by the paths behind links.
    let folder = folder.canonicalize()?;
    for map in Process::myself()?.smaps()? {
        if is_unwritten(&map, &folder) {
            give_back_range(map.address)?;
        }
    }
    Ok(())
}

/// Whether it maps a file of the folder, and no page is the process' own: a page that was written
/// to is, and would lose what was written.
fn is_unwritten(map: &MemoryMap, folder: &Path) -> bool {
    let MMapPath::Path(file) = &map.pathname else { return false };
    file.starts_with(folder) && map.extension.map.get("Anonymous") == Some(&0)
}

#[expect(unsafe_code, reason = "advice on memory is unsafe, since some of it changes contents")]
fn give_back_range((start, end): (u64, u64)) -> std::io::Result<()> {
    let (place, bytes) = (std::ptr::with_exposed_provenance_mut(start as usize), end - start);
    // Pages that are mapped and were read of late count as in use, so the system first hears that
    // it may take these back before others.
    for advice in [Advice::LinuxCold, Advice::LinuxDontNeed] {
        // SAFETY: no page differs from the file, so reading it again gives what it gave before.
        unsafe { madvise(place, bytes as usize, advice) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::path::PathBuf;

    /// Resident KiB of a mapped file.
    fn resident(file: &Path) -> u64 {
        let maps = Process::myself().and_then(|this| this.smaps()).expect("Linux tells it");
        let is_file = |map: &MemoryMap| map.pathname == MMapPath::Path(file.to_owned());
        let map = maps.into_iter().find(is_file).expect("it is mapped");
        map.extension.map["Rss"] / 1024
    }

    /// A mapped file of a MiB, all of whose pages are resident.
    #[expect(unsafe_code, reason = "files are mapped by an unsafe function")]
    fn mapped(folder: &Path, rights: ProtFlags) -> (PathBuf, &'static mut [u8]) {
        let path = folder.canonicalize().expect("it is there").join("numbers with spaces");
        let bytes: Vec<u8> = (0..1 << 20).map(|at| (at / 4096) as u8).collect();
        std::fs::write(&path, &bytes).expect("there is room");
        let file = std::fs::File::open(&path).expect("it is there");
        // SAFETY: nobody writes to the file, and the memory stays mapped to the end.
        let memory = unsafe {
            let none = std::ptr::null_mut();
            let place = mmap(none, bytes.len(), rights, MapFlags::PRIVATE, &file, 0);
            std::slice::from_raw_parts_mut(place.expect("mapped").cast::<u8>(), bytes.len())
        };
        assert!(*memory == bytes);
        assert_eq!(resident(&path), 1024);
        (path, memory)
    }

    #[test]
    fn pages_leave_and_can_be_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, memory) = mapped(folder.path(), ProtFlags::READ);
        let before = memory.to_vec();
        give_back(Path::new("/usr")).expect("the libraries of this test");
        assert_eq!(resident(&path), 1024);
        give_back(folder.path()).expect("the file");
        assert_eq!(resident(&path), 0);
        assert!(*memory == before);
    }

    #[test]
    fn pages_that_were_written_to_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, memory) = mapped(folder.path(), ProtFlags::READ | ProtFlags::WRITE);
        memory[5000] = 77;
        give_back(folder.path()).expect("nothing");
        assert_eq!(memory[5000], 77);
    }
}
