//! Directories below one directory, and nothing else: no symbolic link is followed, and no mount is entered, whatever
//! somebody has put there. Whoever has a volume can put anything into it.

use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How long one call removes files, so that it ends before it would be given up.
const LIMIT: Duration = Duration::from_secs(30);
/// How many directories are read in a row, so that their names fit into the memory.
const AT_ONCE: usize = 1000;
/// The prefix of directories that are moved up to be removed.
const MOVED: &str = ".removed-";

/// The directories of all volumes.
#[derive(Debug, Clone)]
pub struct Directories {
    root: Arc<OwnedFd>,
    path: PathBuf,
}

/// Why something was not done.
#[derive(Debug)]
pub enum Problem {
    /// It must not be done.
    Refused(String),
    /// It did not work: what, and why.
    Failed(&'static str, Errno),
}

/// What is left of a volume.
#[derive(Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing.
    All,
    /// Some of it, after so many entries were removed.
    Partly(u64),
}

impl Directories {
    /// # Errors
    /// It cannot be opened, or others could put something else into the place of a volume.
    pub fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).map_err(|error| format!("{error}; create it, or mount it"))?;
        let found = fs::fstat(&root).map_err(|error| error.to_string())?;
        if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
            return Err("others may write there; make it this user's own, with mode 0755".to_owned());
        }
        Ok(Self { root: Arc::new(root), path: path.to_owned() })
    }

    /// The path of a volume on the node.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the directory of a volume, unless it is there.
    pub fn create(&self, name: &str, mode: u32, gid: u32) -> Result<String, Problem> {
        let path = self.path_of(checked(name)?);
        match fs::mkdirat(&*self.root, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(Problem::Failed("create the directory", error)),
        }
        let directory = self.enter(&self.root, name).map_err(|error| not_entered(&path, error))?;
        fs::fchown(&directory, None, Some(Gid::from_raw(gid))).map_err(failed("give the directory to its group"))?;
        // Not by mkdir, whose mode the umask changes.
        fs::fchmod(&directory, Mode::from_raw_mode(mode)).map_err(failed("set the mode of the directory"))?;
        Ok(path.display().to_string())
    }

    /// Removes the directory of a volume that nobody has used.
    pub fn remove_empty(&self, name: &str) -> Result<(), Problem> {
        match fs::unlinkat(&*self.root, checked(name)?, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
            Err(error) => Err(Problem::Failed("remove the directory", error)),
        }
    }

    /// Removes the directory of a volume with all that is in it.
    ///
    /// A directory within it is emptied of files, its own directories are moved up, and then it is removed. So neither the
    /// stack nor the open files grow with the depth, which has no limit.
    pub fn remove(&self, name: &str) -> Result<Removed, Problem> {
        let path = self.path_of(checked(name)?);
        let volume = match self.enter(&self.root, name) {
            Err(Errno::NOENT) => return Ok(Removed::All),
            entered => entered.map_err(|error| not_entered(&path, error))?,
        };
        let began = Instant::now();
        // An earlier call may have left some.
        let (mut removed, mut moved, unique) = (0, 0, rand::random::<u64>());
        loop {
            let children = self.remove_files(&volume, &path, &mut removed, began)?;
            if began.elapsed() > LIMIT {
                return Ok(Removed::Partly(removed));
            }
            if children.is_empty() {
                return match fs::unlinkat(&*self.root, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => Ok(Removed::All),
                    // Somebody has written meanwhile.
                    Err(Errno::NOTEMPTY) => Ok(Removed::Partly(removed)),
                    Err(error) => Err(not_entered(&path, error)),
                };
            }
            for child in children {
                let shown = path.join(OsStr::from_encoded(&child));
                let directory = match self.enter(&volume, child.as_c_str()) {
                    Err(Errno::NOENT) => continue,
                    entered => entered.map_err(|error| not_entered(&shown, error))?,
                };
                for below in self.remove_files(&directory, &shown, &mut removed, began)? {
                    moved += 1;
                    let to = format!("{MOVED}{unique:x}-{moved}");
                    fs::renameat(&directory, below.as_c_str(), &volume, to.as_str())
                        .map_err(|error| not_entered(&shown.join(OsStr::from_encoded(&below)), error))?;
                }
                match fs::unlinkat(&volume, child.as_c_str(), AtFlags::REMOVEDIR) {
                    Ok(()) => removed += 1,
                    Err(Errno::NOENT | Errno::NOTEMPTY) => {}
                    Err(error) => return Err(not_entered(&shown, error)),
                }
                if began.elapsed() > LIMIT {
                    return Ok(Removed::Partly(removed));
                }
            }
        }
    }

    /// Removes what is no directory, and returns some of the directories, all of them if there are few. Ends when the time of
    /// the call is over.
    fn remove_files(
        &self,
        directory: &OwnedFd,
        path: &Path,
        removed: &mut u64,
        began: Instant,
    ) -> Result<Vec<Name>, Problem> {
        let mut children = Vec::new();
        for entry in Dir::read_from(directory).map_err(failed("list a directory"))? {
            let entry = entry.map_err(failed("list a directory"))?;
            if children.len() >= AT_ONCE || began.elapsed() > LIMIT {
                break;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Unknown => match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::Directory,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(Problem::Failed("read the type of a file", error)),
                },
                kind => kind == FileType::Directory,
            };
            if is_directory {
                children.push(name.to_owned());
                continue;
            }
            match fs::unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => *removed += 1,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(not_entered(&path.join(OsStr::from_encoded(&name.to_owned())), error)),
            }
        }
        Ok(children)
    }

    /// A directory directly below another one: no symbolic link, and on the same mount.
    fn enter<N: rustix::path::Arg>(&self, parent: &OwnedFd, name: N) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        fs::openat2(parent, name, flags, Mode::empty(), resolve)
    }
}

type Name = std::ffi::CString;

trait FromEncoded {
    fn from_encoded(name: &Name) -> &Self;
}

impl FromEncoded for OsStr {
    fn from_encoded(name: &Name) -> &Self {
        use std::os::unix::ffi::OsStrExt as _;
        let name: &CStr = name;
        Self::from_bytes(name.to_bytes())
    }
}

/// A name that is one directory, and not another place.
fn checked(name: &str) -> Result<&str, Problem> {
    match name {
        "" | "." | ".." => Err(Problem::Refused(format!("{name:?} is not the name of a directory"))),
        name if name.contains('/') => Err(Problem::Refused(format!("{name:?} is not the name of a directory"))),
        name => Ok(name),
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Problem {
    move |error| Problem::Failed(what, error)
}

fn not_entered(path: &Path, error: Errno) -> Problem {
    let why = match error {
        Errno::XDEV | Errno::BUSY => "something is mounted there; unmount it",
        Errno::LOOP => "it is a symbolic link, which is not followed; remove it",
        Errno::NOTDIR => "it is not a directory; remove it",
        error => return Problem::Failed("remove a file or directory", error),
    };
    Problem::Refused(format!("{} is left alone, because {why}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    use super::*;

    const NAME: &str = "pvc-1";

    /// A group that this process can give a directory to: any, for root.
    fn group() -> u32 {
        if rustix::process::geteuid().is_root() { 2000 } else { rustix::process::getegid().as_raw() }
    }

    /// A directory of volumes, and another one that must not change.
    struct Place {
        root: PathBuf,
        directories: Directories,
    }

    impl Place {
        fn new() -> Self {
            let root = std::env::temp_dir().join(format!("hostpath-{:x}", rand::random::<u64>()));
            for directory in ["volumes", "precious"] {
                std::fs::create_dir_all(root.join(directory)).unwrap();
            }
            std::fs::write(root.join("precious/data"), "1").unwrap();
            Self { directories: Directories::open(&root.join("volumes")).unwrap(), root }
        }

        fn volume(&self) -> PathBuf {
            self.root.join("volumes").join(NAME)
        }

        fn precious(&self) -> PathBuf {
            self.root.join("precious")
        }

        fn refusal(&self) -> String {
            match self.directories.remove(NAME) {
                Err(Problem::Refused(why)) => why,
                other => panic!("not refused: {other:?}"),
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let kept = std::fs::read_to_string(self.precious().join("data"));
            std::fs::remove_dir_all(&self.root).unwrap();
            assert_eq!(kept.unwrap(), "1", "what lies outside is touched by nothing");
        }
    }

    /// Creating it twice changes nothing.
    #[test]
    fn a_volume_has_the_mode_and_group_of_its_class() {
        let place = Place::new();
        for _ in 0..2 {
            let path = place.directories.create(NAME, 0o2770, group()).unwrap();
            assert_eq!(PathBuf::from(&path), place.volume());
            std::fs::write(place.volume().join("kept"), "").unwrap();
        }
        let found = std::fs::metadata(place.volume()).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o2770);
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&found), group());
        assert!(place.volume().join("kept").exists());
    }

    /// Deleting one that does not exist succeeds.
    #[test]
    fn deleting_a_volume_deletes_its_content() {
        let place = Place::new();
        place.directories.create(NAME, 0o2770, group()).unwrap();
        std::fs::create_dir_all(place.volume().join("a/b/.removed-1")).unwrap();
        std::fs::write(place.volume().join("a/b/c"), "").unwrap();
        std::fs::write(place.volume().join(".hidden"), "").unwrap();
        place.directories.create("pvc-2", 0o2770, group()).unwrap();
        assert_eq!(place.directories.remove(NAME).unwrap(), Removed::All);
        assert!(!place.volume().exists());
        assert_eq!(place.directories.remove(NAME).unwrap(), Removed::All);
        assert!(place.root.join("volumes/pvc-2").exists());
    }

    #[test]
    fn a_volume_of_any_depth_can_be_removed() {
        let place = Place::new();
        place.directories.create(NAME, 0o2770, group()).unwrap();
        // Deeper than a path can be long.
        let mut at = place.directories.enter(&place.directories.root, NAME).unwrap();
        for _ in 0..5000 {
            fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = place.directories.enter(&at, "d").unwrap();
        }
        assert_eq!(place.directories.remove(NAME).unwrap(), Removed::All);
        assert!(!place.volume().exists());
    }

    #[test]
    fn links_in_a_volume_are_removed_and_not_followed() {
        let place = Place::new();
        place.directories.create(NAME, 0o2770, group()).unwrap();
        std::fs::create_dir(place.volume().join("below")).unwrap();
        symlink(place.precious(), place.volume().join("link")).unwrap();
        symlink(place.precious().join("data"), place.volume().join("below/link")).unwrap();
        assert_eq!(place.directories.remove(NAME).unwrap(), Removed::All);
        assert!(!place.volume().exists());
    }

    #[test]
    fn a_link_in_the_place_of_a_volume_is_refused() {
        let place = Place::new();
        symlink(place.precious(), place.volume()).unwrap();
        assert!(place.refusal().contains("symbolic link"), "{}", place.refusal());
        assert!(matches!(place.directories.create(NAME, 0o777, 0), Err(Problem::Refused(_))));
        let mode = std::fs::metadata(place.precious()).unwrap().permissions().mode();
        assert_ne!(mode & 0o777, 0o777);
    }

    #[test]
    fn a_mount_in_a_volume_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped, for only root can mount something");
        }
        let place = Place::new();
        place.directories.create(NAME, 0o2770, group()).unwrap();
        for below in ["mounted", "deep/mounted"] {
            let target = place.volume().join(below);
            std::fs::create_dir_all(&target).unwrap();
            let mount = |command: &mut Command| assert!(command.status().unwrap().success(), "these tests need root");
            mount(Command::new("mount").arg("--bind").arg(place.precious()).arg(&target));
            let why = place.refusal();
            mount(Command::new("umount").arg(&target));
            assert!(why.contains("something is mounted there"), "{why}");
            assert!(place.precious().join("data").exists());
        }
        assert_eq!(place.directories.remove(NAME).unwrap(), Removed::All);
    }

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        let place = Place::new();
        for name in ["", ".", "..", "../precious", "a/b", "/"] {
            assert!(matches!(place.directories.remove(name), Err(Problem::Refused(_))), "{name}");
            assert!(matches!(place.directories.create(name, 0o777, 0), Err(Problem::Refused(_))), "{name}");
        }
    }

    #[test]
    fn a_place_where_others_may_write_is_refused() {
        let place = Place::new();
        let open = place.root.join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(Directories::open(&open).is_err_and(|problem| problem.contains("others may write")));
        assert!(Directories::open(&place.root.join("none")).is_err_and(|problem| problem.contains("create it")));
    }
}
