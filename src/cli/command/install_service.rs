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

/// Have systemd keep the daemon running, for the machine or for you alone
///
/// Writes the units with the path of this program, enables them and starts them. For the machine (as root) the daemon serves
/// the members of the group acpd, whose agents run as them; with --user it is your own, from login on. Units that somebody
/// else has written are left alone. Prints the files that it wrote or removed.
#[derive(Args, Debug)]
pub struct InstallService {
    /// In your own manager, for you alone
    #[arg(long)]
    pub user: bool,
    /// Only show the files
    #[arg(long, conflicts_with = "uninstall")]
    pub print: bool,
    /// Stop the service and take its files away; sessions and configuration stay
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
            return Err(ClientError::local(
                "a service keeps its things in the usual places",
                "leave --config, --socket, --state-dir and their variables out; a drop-in can set them (`systemctl edit acpd`)",
            ));
        }
        let find = |source| ClientError::io("find this program's own file", source);
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
                "only root can change the machine's services",
                "use sudo, or --user for a daemon of your own",
            )),
            manager if !manager.runs() => {
                let whose = if manager == Manager::User { "your user manager" } else { "systemd" };
                let hint = match manager {
                    Manager::User => "log in, or `loginctl enable-linger`, and see that XDG_RUNTIME_DIR is set",
                    Manager::System => {
                        "`acpd install-service --print` shows the units; without systemd `acpd serve` runs the daemon"
                    }
                };
                Err(ClientError::local(format!("{whose} does not run here"), hint))
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
                "the service goes on as it was started; `{systemctl} restart acpd` has it take the new units"
            ));
        } else {
            output
                .note(&format!("{SERVICE} and {SOCKET} are enabled and started; `{systemctl} status acpd` shows them"));
        }
        match self.manager {
            Manager::System if !names_group() => {
                let file = units::SYSTEM_CONFIG_FILE;
                output.note(&format!("only root can use it: {file} does not set control.group (\"acpd\")"));
            }
            Manager::System => output.aside("`usermod -aG acpd NAME` lets somebody use it, from the next login on"),
            Manager::User => output.aside("it ends with your last logout, unless `loginctl enable-linger` keeps it"),
        }
        Ok(Exit::Ok)
    }

    async fn uninstall(&self) -> Result<Exit, ClientError> {
        let ours: Vec<&UnitFile> = self.files.iter().filter(|file| is_ours(&file.path)).collect();
        if ours.is_empty() {
            let hint = format!("`{} cat acpd` shows whose units there are", self.manager.systemctl());
            return Err(ClientError::local("there is no service that `acpd install-service` has installed", hint));
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
                output
                    .note("the sessions stay in /var/lib/acpd, the configuration in /etc/acpd, and so does the group");
            }
            Manager::User => {
                output.note(&format!("the sessions stay in {}", self.context.paths().state_dir.display()));
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
                format!("{} is there, and is not as `acpd install-service` writes it", file.path.display()),
                "move it away; changes of your own belong into a drop-in (`systemctl edit acpd`)",
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
        let message = format!("a daemon runs already at {}", socket.display());
        Err(ClientError::local(message, "`acpd stop` ends it; its sessions are suspended and go on in the service"))
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
    Err(ClientError::local(format!("{program} cannot be root's service: others than root can change {others}"), hint))
}
