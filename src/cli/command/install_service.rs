//! `acpd install-service`: has systemd keep the daemon running, and says what it did.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tokio::process::Command;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::service::units::{self, UnitFile};
use crate::cli::service::{Manager, SERVICE, SOCKET};
use crate::cli::text::one_line;

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
        let service = Service::new(if self.user { Manager::User } else { Manager::System }, context)?;
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
    fn new(manager: Manager, context: &'a Context) -> Result<Self, ClientError> {
        let find = |source| ClientError::io("find this program's own file", source);
        let program = std::env::current_exe().and_then(std::fs::canonicalize).map_err(find)?;
        let search_path = std::env::var("PATH").unwrap_or_default();
        let files = units::files(manager, &context.paths().home, &program, &search_path);
        Ok(Self { context, manager, program, files })
    }

    fn print(&self) -> Result<Exit, ClientError> {
        let shown = self.files.iter().map(|file| format!("# {}\n{}", file.path.display(), file.text));
        self.context.output.print(shown.collect::<Vec<_>>().join("\n").trim_end())?;
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
        let mut written = Vec::new();
        for file in &self.files {
            write(&file.path, &file.text)?;
            written.push(file.path.clone());
        }
        if self.manager == Manager::System {
            written.extend(first_configuration()?);
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
        output.aside(match self.manager {
            Manager::System => "`usermod -aG acpd NAME` lets somebody use it, from the next login on",
            Manager::User => "it ends with your last logout, unless `loginctl enable-linger` keeps it",
        });
        Ok(Exit::Ok)
    }

    async fn uninstall(&self) -> Result<Exit, ClientError> {
        let ours: Vec<&UnitFile> = self.files.iter().filter(|file| is_ours(&file.path)).collect();
        if ours.is_empty() {
            let hint = format!("`{} cat acpd` shows whose units there are", self.manager.systemctl());
            return Err(ClientError::local("there is no service that `acpd install-service` has installed", hint));
        }
        // One that somebody has taken away already cannot be disabled.
        let units = ours.iter().filter_map(|file| file.path.file_name()?.to_str());
        let units = units.filter(|name| [SERVICE, SOCKET].contains(name));
        let disable: Vec<&str> = ["disable", "--now"].into_iter().chain(units).collect();
        if disable.len() > 2 {
            self.manager.tell(&disable).await?;
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
        match self.files.iter().find(|file| file.path.exists() && !is_ours(&file.path)) {
            None => Ok(()),
            Some(file) => Err(ClientError::local(
                format!("{} is there, and `acpd install-service` has not written it", file.path.display()),
                "move it away; changes of your own belong into a drop-in (`systemctl edit acpd`)",
            )),
        }
    }

    /// A daemon that a client has started has the state, and the service could not start.
    async fn check_nobody_serves(&self) -> Result<(), ClientError> {
        if self.manager == Manager::System || self.context.running_daemon().await.is_err() {
            return Ok(());
        }
        let message = format!("a daemon runs already at {}", self.context.socket.display());
        Err(ClientError::local(message, "`acpd stop` ends it; its sessions are suspended and go on in the service"))
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<(), ClientError> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.manager.carry_out(command, &format!("{program} {}", arguments.join(" "))).await
    }
}

/// Who may use the machine's daemon, unless somebody has said so before.
fn first_configuration() -> Result<Option<PathBuf>, ClientError> {
    let path = Path::new(units::SYSTEM_CONFIG_FILE);
    if path.exists() {
        return Ok(None);
    }
    write(path, units::SYSTEM_CONFIG)?;
    Ok(Some(path.to_owned()))
}

fn is_ours(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| units::is_ours(&text))
}

fn write(path: &Path, text: &str) -> Result<(), ClientError> {
    let failed = |source| ClientError::io(format!("write {}", path.display()), source);
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    std::fs::write(path, text).map_err(failed)
}

/// Root runs it at every boot: whoever could change the file, or put another in its place, would be root.
fn only_roots(program: &Path) -> Result<(), ClientError> {
    let others = program.ancestors().find(|path| {
        let is_roots = |file: std::fs::Metadata| file.uid() == 0 && file.mode() & 0o022 == 0;
        !path.metadata().is_ok_and(is_roots)
    });
    let Some(others) = others else { return Ok(()) };
    let (program, others) = (program.display(), others.display());
    Err(ClientError::local(
        format!("{program} cannot be root's service: others than root can change {others}"),
        format!(
            "`install -m 755 {program} /usr/local/bin/acpd`, then `/usr/local/bin/acpd install-service`; or, where that is \
             what others can change, `chmod go-w {others}`"
        ),
    ))
}
