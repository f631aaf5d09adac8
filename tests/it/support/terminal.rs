//! A terminal in which an admin runs a command.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::Child;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::tool::{Folder, command, rand_id};
use super::{PATIENCE, World};

/// A command that runs in a terminal of 24 lines with 200 columns.
pub(crate) struct Terminal {
    child: Child,
    written: UnboundedReceiver<Vec<u8>>,
    /// All that was written, with the codes that move the cursor.
    screen: String,
    _folder: Folder,
}

impl Terminal {
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let folder = Folder::new(&world.unique(&format!("{:x}", rand_id())));
        let (ours, theirs) = open();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = command(world, &folder, args);
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.kill_on_drop(true).spawn().unwrap();
        let (sender, written) = unbounded_channel();
        // Ends with the command, which is the last that has the other end.
        std::thread::spawn(move || {
            let (mut ours, mut read) = (std::fs::File::from(ours), [0; 4096]);
            while let Ok(length @ 1..) = ours.read(&mut read) {
                if sender.send(read[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, written, screen: String::new(), _folder: folder }
    }

    /// Waits until all these texts were written since the last call.
    pub(crate) async fn shows(&mut self, texts: &[&str]) {
        // It draws again and again, so the limit is for all of that.
        let end = Instant::now() + PATIENCE;
        while !texts.iter().all(|text| self.screen.contains(text)) {
            let more = tokio::time::timeout_at(end, self.written.recv()).await;
            let Ok(Some(more)) = more else { panic!("{texts:?} is not shown: {}", self.screen.escape_debug()) };
            self.screen.push_str(&String::from_utf8_lossy(&more));
        }
        self.screen.clear();
    }

    /// Waits for its end.
    pub(crate) async fn end(mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap().code()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

/// Both ends of a new terminal.
fn open() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(theirs.as_fd(), size).unwrap();
    (ours, theirs)
}
