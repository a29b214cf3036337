//! System calls by which an agent got past Landlock: refused at both levels of confinement.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use harness::{Daemon, DaemonBuilder, SHELL, has, has_bubblewrap, run, with_shell};

/// A daemon at each level that this machine can have.
async fn daemons(sandbox: &str) -> Vec<Daemon> {
    let section = format!("[sandbox]\n{sandbox}");
    let mut daemons = vec![with_shell(Daemon::builder(), &section).start().await];
    if has_bubblewrap() {
        daemons.push(with_shell(DaemonBuilder::isolated(), &section).start().await);
    }
    daemons
}

/// A script that tells which error each attempt ends with.
fn python(attempts: &str) -> String {
    let head = "import ctypes, errno, fcntl, os, platform, socket\n\
                libc = ctypes.CDLL(None, use_errno=True)\n\
                def call(number, *arguments):\n    \
                    if libc.syscall(number, *arguments) < 0:\n        \
                        raise OSError(ctypes.get_errno(), '')\n    \
                    return 0\n\
                def attempt(what):\n    \
                    try: what(); print('done')\n    \
                    except OSError as error: print(errno.errorcode[error.errno])\n";
    format!("python3 - <<'END'\n{head}{attempts}\nEND")
}

#[tokio::test]
async fn tcp_reaches_the_configured_ports_only_in_every_way_to_connect() {
    if !has("python3") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let attempts = format!(
        "to = ('127.0.0.1', {port})\n\
         attempt(lambda: socket.socket().connect(to))\n\
         attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(to))\n\
         attempt(lambda: socket.socket().sendto(b'x', 0x20000000, to))\n\
         attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))\n\
         attempt(lambda: socket.socket(43, socket.SOCK_STREAM))\n\
         attempt(lambda: call(425, 1, 0))\n\
         attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(to))\n\
         attempt(lambda: socket.socketpair())"
    );
    let refused = "EACCES EPERM EPERM EPERM EPERM ENOSYS done done";
    for (sandbox, expected) in [
        ("network = \"ports\"", refused.to_owned()),
        (&*format!("network = \"ports\"\nconnect_ports = [{port}]"), refused.replacen("EACCES", "done", 1)),
    ] {
        for daemon in daemons(sandbox).await {
            let session = daemon.create_lazy_session(SHELL).await;
            let said = run(&daemon, &session, &python(&attempts)).await;
            assert_eq!(said.replace('\n', " "), format!("{expected} exit 0"), "{sandbox}");
        }
    }
}

#[tokio::test]
async fn without_a_network_nothing_but_unix_sockets_connects() {
    if !has("python3") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let attempts = format!(
        "to = ('127.0.0.1', {port})\n\
         attempt(lambda: socket.socket().connect(to))\n\
         attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)))\n\
         attempt(lambda: socket.socketpair())"
    );
    let expected = [("writes-only", "EPERM EPERM done"), ("isolated", "ECONNREFUSED ENETUNREACH done")];
    for (daemon, (level, expected)) in daemons("network = \"none\"").await.iter().zip(expected) {
        let session = daemon.create_lazy_session(SHELL).await;
        let said = run(daemon, &session, &python(&attempts)).await;
        assert_eq!(said.replace('\n', " "), format!("{expected} exit 0"));
        assert_eq!(daemon.session(&session).await["sandbox"], level);
    }
}

#[tokio::test]
async fn nothing_is_done_to_other_processes_of_the_user() {
    if !has("python3") || !cfg!(target_arch = "x86_64") {
        return;
    }
    for daemon in daemons("").await {
        let session = daemon.create_lazy_session(SHELL).await;
        let attempts = format!(
            "daemon = {}\n\
             attempt(lambda: os.sched_setaffinity(daemon, {{0}}))\n\
             attempt(lambda: os.setpriority(os.PRIO_PROCESS, daemon, 19))\n\
             attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))\n\
             attempt(lambda: call(250, 0, -4, 0))\n\
             attempt(lambda: call(248, b'user', b'acpd', b'x', 1, -4))\n\
             lease = os.open('{}', os.O_RDONLY)\n\
             attempt(lambda: fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_RDLCK))",
            daemon.pid(),
            daemon.workspace().join("mine").display(),
        );
        std::fs::write(daemon.workspace().join("mine"), "").unwrap();
        let said = run(&daemon, &session, &python(&attempts)).await.replace('\n', " ");
        let is_isolated = daemon.session(&session).await["sandbox"] == "isolated";
        // In its own namespace there is no process of this number.
        let of_others = if is_isolated { "ESRCH ESRCH" } else { "EPERM EPERM" };
        assert_eq!(said, format!("{of_others} done EPERM EPERM EPERM exit 0"));
        // Nobody outside of it sees what it shares.
        let shared = run(&daemon, &session, "ipcmk -M 4096 && ipcs -m | grep -c 0x || true").await;
        assert_eq!(shared.contains("Shared memory id"), is_isolated, "{shared}");
        if let Some(key) = shared.lines().find(|line| line.starts_with("0x")) {
            let outside = Command::new("ipcs").arg("-m").output().unwrap();
            assert!(!String::from_utf8_lossy(&outside.stdout).contains(key), "{outside:?}");
        }
    }
}

/// A file system in a file, for as long as the value lives.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0).output());
    }
}

#[tokio::test]
async fn a_workspace_on_btrfs_is_not_copied_to_elsewhere() {
    if !rustix::process::geteuid().is_root() || !has("mkfs.btrfs") {
        return harness::skip("only root can mount a btrfs, with btrfs-progs");
    }
    let succeeds = |program: &str, arguments: &[&Path]| {
        let done = Command::new(program).args(arguments).output().unwrap();
        assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
    };
    for builder in [Daemon::builder(), DaemonBuilder::isolated()] {
        let (image, disk) = (builder.root().join("image"), builder.root().join("disk"));
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        std::fs::create_dir(&disk).unwrap();
        succeeds("mkfs.btrfs", &["-q".as_ref(), &image]);
        succeeds("mount", &["-o".as_ref(), "loop".as_ref(), &image, &disk]);
        let mounted = Mounted(&disk);
        let work = disk.join("work");
        succeeds("btrfs", &["subvolume".as_ref(), "create".as_ref(), &work]);
        let mut daemon = with_shell(builder, "").start().await;
        let body = serde_json::json!({"workspace": work, "agent": SHELL, "start": "lazy"});
        let session = daemon.post("/v1/sessions", body).await.expect_status(201);
        let session = session["id"].as_str().unwrap();
        for escape in
            ["btrfs subvolume snapshot . ..", "btrfs subvolume snapshot . ../stolen", "btrfs subvolume create ../made"]
        {
            let said = run(&daemon, session, &format!("{escape} 2>&1")).await;
            assert!(!said.contains("exit 0"), "{escape}: {said}");
        }
        assert_eq!(disk.read_dir().unwrap().count(), 1);
        let copy = "echo x > a && cp --reflink=always a b && cat b";
        assert_eq!(run(&daemon, session, copy).await, "x\nexit 0");
        daemon.terminate().await;
        drop(mounted);
    }
}
