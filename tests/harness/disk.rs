//! A small disk of the test's own: a tmpfs that can be filled and emptied.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// A mounted file system. Dropping it takes it away, also from whoever still has files open on it.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts it over a directory that is there. Nothing, with a word on stderr, where the tests are not root's: only
    /// root can mount.
    pub fn mount(path: &Path, size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            super::say("SKIPPED: only root can mount a small disk, so nothing of full disks is tested");
            return None;
        }
        let options = format!("size={size},mode=0700");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "acpd-test"]).arg(path).status();
        assert!(status.expect("mount can be run").success(), "root cannot mount a tmpfs here: nothing of it is tested");
        Some(Self { path: path.to_owned() })
    }

    /// Leaves no space at all.
    pub fn fill(&self) {
        let file = File::create(self.filler()).expect("a file can be made");
        let system = statvfs(&self.path).expect("the disk is mounted");
        let bytes = system.f_bavail * system.f_frsize;
        fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("what is free can be taken");
    }

    /// From now on nobody writes there.
    pub fn protect(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.path).status();
        assert!(status.expect("mount can be run").success(), "the disk can be mounted again");
    }

    pub fn empty(&self) {
        std::fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is mounted for longer only costs memory.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
