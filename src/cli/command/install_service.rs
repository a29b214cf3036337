//! `acpd install-service`: has systemd keep the daemon running, and says what it did.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tokio::process::Command;

use crate::cli::connection::Daemon;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::service::units::{self, UnitFile};
use crate::cli::service::{Manager, SERVICE, SOCKET, SYSTEM_SOCKET};
use crate::cli::text::one_line;
use crate::config::Config;

/// Where the units of the repository have the program.
const PROGRAM: &str = "/usr/local/bin/acpd";
const FILE_MODE: u32 = 0o644;

/// Install the daemon as a systemd service
///
/// Writes systemd units that run this program, enables and starts them. As root, it installs one daemon for the machine: it
/// serves the members of the group acpd and runs their agents as those users. With --user, it installs a daemon for you,
/// which starts when you log in. Units that `acpd install-service` did not write are not changed. Prints the files that it
/// wrote or removed.
#[derive(Args, Debug)]
pub struct InstallService {
    /// Install for your user only
    #[arg(long)]
    pub user: bool,
    /// Print the files and install nothing
    #[arg(long, conflicts_with = "uninstall")]
    pub print: bool,
    /// Stop the service and remove its units; sessions and configuration stay
    #[arg(long)]
    pub uninstall: bool,
}

impl InstallService {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let service = Service::new(if self.user { Manager::User } else { Manager::System }, context).await?;
        if self.print {
            return service.print();
        }
        service.check_manager()?;
        if self.uninstall { service.uninstall().await } else { service.install().await }
    }
}

struct Service<'a> {
    context: &'a Context,
    manager: Manager,
    program: PathBuf,
    files: Vec<UnitFile>,
}

impl<'a> Service<'a> {
    async fn new(manager: Manager, context: &'a Context) -> Result<Self, ClientError> {
        if !context.is_usual() {
            let hint = format!(
                "omit --config, --socket, --state-dir and their variables; set them in a drop-in (`{} edit acpd`)",
                manager.systemctl()
            );
            return Err(ClientError::local(
                "a service uses the default configuration file, socket and state directory",
                hint,
            ));
        }
        let find = |source| ClientError::io("find the path of this program", source);
        let program = std::env::current_exe().and_then(std::fs::canonicalize).map_err(find)?;
        let places = units::directories(manager, &context.paths().home);
        // What a shell has set need not be what the manager knows.
        let known = if places.len() > 1 { manager.unit_path().await } else { Vec::new() };
        let place = places.iter().rev().find(|place| known.contains(place)).or(places.first());
        let place = place.map_or(Path::new("/"), PathBuf::as_path);
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let files = units::files(manager, place, &program, variable);
        Ok(Self { context, manager, program, files })
    }

    fn print(&self) -> Result<Exit, ClientError> {
        let output = self.context.output;
        let first = first_configuration().filter(|_| self.manager == Manager::System);
        let files = self.files.iter().chain(&first);
        if output.json {
            let files: Vec<_> = files.map(|file| json!({ "path": file.path, "text": file.text })).collect();
            output.print(&json!({ "files": files }).to_string())?;
        } else {
            let shown = files.map(|file| format!("# {}\n{}", file.path.display(), file.text));
            output.print(shown.collect::<Vec<_>>().join("\n").trim_end())?;
        }
        Ok(Exit::Ok)
    }

    fn check_manager(&self) -> Result<(), ClientError> {
        let is_root = rustix::process::geteuid().is_root();
        match self.manager {
            Manager::System if !is_root => Err(ClientError::local(
                "only root can install a service for the machine",
                "use sudo, or install your own daemon with --user",
            )),
            manager if !manager.runs() => {
                let whose = if manager == Manager::User { "your user manager" } else { "systemd" };
                let hint = match manager {
                    Manager::User => "log in, or run `loginctl enable-linger`, and check that XDG_RUNTIME_DIR is set",
                    Manager::System => {
                        "run the daemon with `acpd serve`; `acpd install-service --print` prints the units"
                    }
                };
                Err(ClientError::local(format!("{whose} is not running"), hint))
            }
            _ => Ok(()),
        }
    }

    async fn install(&self) -> Result<Exit, ClientError> {
        if self.manager == Manager::System {
            only_roots(&self.program)?;
        }
        self.leave_others_alone()?;
        let was_active = self.manager.ask("is-active", SERVICE).await == "active";
        // Whoever connects where systemd listens would find the service itself.
        if !was_active && self.manager.ask("is-active", SOCKET).await != "active" {
            self.check_nobody_serves().await?;
        }
        let first = first_configuration().filter(|_| self.manager == Manager::System);
        let mut written = Vec::new();
        for file in self.files.iter().chain(&first) {
            write(file)?;
            written.push(file.path.clone());
        }
        if self.manager == Manager::System {
            self.run("systemd-sysusers", &[units::SYSUSERS_FILE]).await?;
            self.run("systemd-tmpfiles", &["--create", units::TMPFILES_FILE]).await?;
        }
        // What follows may fail, and then it is good to know how far it got.
        self.report("wrote", &written)?;
        self.manager.tell(&["daemon-reload"]).await?;
        self.manager.tell(&["enable", "--now", SOCKET, SERVICE]).await?;
        let output = self.context.output;
        let systemctl = self.manager.systemctl();
        if was_active {
            output.note(&format!(
                "the running service still uses the old units; `{systemctl} restart acpd` applies the new ones"
            ));
        } else {
            output.note(&format!(
                "{SERVICE} and {SOCKET} are enabled and started; `{systemctl} status acpd` shows their status"
            ));
        }
        match self.manager {
            Manager::System if !names_group() => {
                let file = units::SYSTEM_CONFIG_FILE;
                output.note(&format!(
                    "only root can use this daemon, because {file} does not set control.group (\"acpd\")"
                ));
            }
            Manager::System => {
                output.aside("to let a user connect: `usermod -aG acpd NAME`, effective at the next login");
            }
            Manager::User => {
                output.aside("the service stops when you log out, unless you run `loginctl enable-linger`");
            }
        }
        Ok(Exit::Ok)
    }

    async fn uninstall(&self) -> Result<Exit, ClientError> {
        let ours: Vec<&UnitFile> = self.files.iter().filter(|file| is_ours(&file.path)).collect();
        if ours.is_empty() {
            let hint = format!("`{} cat acpd` shows the units that systemd has", self.manager.systemctl());
            return Err(ClientError::local("no service installed by `acpd install-service` was found", hint));
        }
        for unit in [SERVICE, SOCKET] {
            // What systemd does not know, because it looks elsewhere, it cannot disable.
            let is_ours = ours.iter().any(|file| file.path.ends_with(unit));
            if is_ours && !self.manager.is_without(unit).await {
                self.manager.tell(&["disable", "--now", unit]).await?;
            }
        }
        let mut removed = Vec::new();
        for UnitFile { path, .. } in ours {
            let failed = |source| ClientError::io(format!("remove {}", path.display()), source);
            std::fs::remove_file(path).map_err(failed)?;
            removed.push(path.clone());
        }
        self.manager.tell(&["daemon-reload"]).await?;
        self.report("removed", &removed)?;
        let output = self.context.output;
        match self.manager {
            Manager::System => {
                output.note(
                    "not removed: the sessions in /var/lib/acpd, the configuration in /etc/acpd, and the group acpd",
                );
            }
            Manager::User => {
                output.note(&format!("not removed: the sessions in {}", self.context.paths().state_dir.display()));
            }
        }
        Ok(Exit::Ok)
    }

    /// What was done to the files, on stdout.
    fn report(&self, deed: &str, paths: &[PathBuf]) -> Result<(), ClientError> {
        let output = self.context.output;
        if output.json {
            return output.print(&json!({ deed: paths, "program": self.program }).to_string());
        }
        let lines = paths.iter().map(|path| format!("{deed} {}", one_line(&path.display().to_string())));
        output.print(&lines.collect::<Vec<_>>().join("\n"))
    }

    /// Before anything is changed.
    fn leave_others_alone(&self) -> Result<(), ClientError> {
        let is_others = |path: &Path| !read(path).is_some_and(|text| units::is_untouched(&text));
        match self.files.iter().find(|file| file.path.symlink_metadata().is_ok() && is_others(&file.path)) {
            None => Ok(()),
            Some(file) => Err(ClientError::local(
                format!("{} exists and was not written by `acpd install-service`", file.path.display()),
                format!(
                    "move it away, and put your own changes into a drop-in (`{} edit acpd`)",
                    self.manager.systemctl()
                ),
            )),
        }
    }

    /// A daemon that a client has started has the state, and the service could not start.
    async fn check_nobody_serves(&self) -> Result<(), ClientError> {
        // Wherever a client finds one, which may have been started with another environment; but the machine's is another one.
        let is_machines = self.context.socket == Path::new(SYSTEM_SOCKET);
        let socket = if is_machines { &self.context.paths().socket } else { &self.context.socket };
        if self.manager == Manager::System || Daemon::new(socket.clone()).probe().await.is_err() {
            return Ok(());
        }
        let message = format!("a daemon is already running at {}", socket.display());
        Err(ClientError::local(
            message,
            "stop it with `acpd stop`; its sessions are suspended and continue in the service",
        ))
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<(), ClientError> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.manager.carry_out(command, &format!("{program} {}", arguments.join(" "))).await
    }
}

/// Who may use the machine's daemon, unless there is a configuration already.
fn first_configuration() -> Option<UnitFile> {
    let (path, text) = (PathBuf::from(units::SYSTEM_CONFIG_FILE), units::SYSTEM_CONFIG.to_owned());
    (!path.exists()).then_some(UnitFile { path, text })
}

/// Whether the machine's configuration lets anybody in but root.
fn names_group() -> bool {
    let config = Config::load(Some(Path::new(units::SYSTEM_CONFIG_FILE)), &BTreeMap::new());
    // One with mistakes is told of by the service that does not start.
    config.map_or(true, |config| config.control.group.is_some())
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn is_ours(path: &Path) -> bool {
    read(path).is_some_and(|text| units::is_ours(&text))
}

/// For everybody to read, whatever the umask.
fn write(UnitFile { path, text }: &UnitFile) -> Result<(), ClientError> {
    let failed = |source| ClientError::io(format!("write {}", path.display()), source);
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    std::fs::write(path, text).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).map_err(failed)
}

/// Root runs it at every boot: whoever could change the file, or put another in its place, would be root.
fn only_roots(program: &Path) -> Result<(), ClientError> {
    let others = program.ancestors().find(|path| {
        let is_roots = |file: std::fs::Metadata| file.uid() == 0 && file.mode() & 0o022 == 0;
        !path.metadata().is_ok_and(is_roots)
    });
    let Some(others) = others else { return Ok(()) };
    let hint = if Path::new(PROGRAM).starts_with(others) {
        // On some machines /usr/local is a group's.
        format!("`chown root {0} && chmod go-w {0}`", others.display())
    } else {
        format!("`install -m 755 {} {PROGRAM}`, then `{PROGRAM} install-service`", program.display())
    };
    let (program, others) = (program.display(), others.display());
    Err(ClientError::local(
        format!("{program} cannot run as root's service, because users other than root can change {others}"),
        hint,
    ))
}
