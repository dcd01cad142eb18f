//! `gateway certs init`: flags in, files and the next commands out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use render::rollout::words::moment;
use serde::Serialize;

use crate::certs::{self, CertsError, DAYS_MAX, File, Kind, Plan, Request};
use crate::clock::Clock;

/// Certificates for trying things out.
#[derive(Debug, Args)]
pub struct CertsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CertsCommand,
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make a private authority, and certificates for a gateway, collectors, replicas and
    /// aggregators, for trying TLS out. In production, take those of your own issuer.
    Init(InitArgs),
}

/// What is made.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Where the files go; made where it is missing.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Host name or IP address that the gateway and the aggregator are reached by; may be given
    /// several times or with commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = certs::server_name)]
    #[arg(default_values = ["localhost", "127.0.0.1", "::1"])]
    pub name: Vec<String>,
    /// Name of a collector's certificate, such as its host name; may be given several times or with
    /// commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = certs::dns_name)]
    #[arg(default_value = "collector")]
    pub collector: Vec<String>,
    /// Name of a replica on the uplink, as its --instance-label says it; may be given several times
    /// or with commas [default: no certificates for the uplink].
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = certs::dns_name)]
    pub replica: Vec<String>,
    /// Also make a certificate for aggregators, with the names of --name.
    #[arg(long)]
    pub aggregator: bool,
    /// Days that everything is valid.
    #[arg(long, value_name = "N", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    pub days: u32,
    /// Replace files that are there: a new authority, whatever the old one signed is refused then.
    #[arg(long)]
    pub force: bool,
    /// Form of what is printed.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Form of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Makes and writes them: exit code 2 for a usage error, 1 when they cannot be written.
pub fn run(arguments: CertsArgs) -> ExitCode {
    let CertsCommand::Init(init) = arguments.command;
    match init.make(Clock::start().unix_ms()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("gateway: {error}");
            ExitCode::from(if matches!(error, CertsError::Twice(_)) { 2 } else { 1 })
        }
    }
}

impl InitArgs {
    /// Writes the files, and says which and what for.
    ///
    /// # Errors
    ///
    /// [`CertsError`]; what is on the disk then is told there.
    pub fn make(self, now_ms: u64) -> Result<String, CertsError> {
        let request = Request {
            names: self.name,
            collectors: self.collector,
            replicas: self.replica,
            aggregator: self.aggregator,
            days: self.days,
        };
        let plan = certs::plan(&request, now_ms)?;
        plan.write(&self.dir, self.force)?;
        let told = Told::new(&self.dir, &plan, &request);
        Ok(match self.output {
            Form::Text => told.text(),
            Form::Json => serde_json::to_string_pretty(&told).map_err(CertsError::Tell)? + "\n",
        })
    }
}

/// What was made, and what it is for.
#[derive(Debug, Serialize)]
struct Told {
    dir: String,
    not_after: String,
    files: Vec<ToldFile>,
    next: Vec<Next>,
}

#[derive(Debug, Serialize)]
struct ToldFile {
    path: String,
    kind: Kind,
    role: &'static str,
    mode: &'static str,
    names: Vec<String>,
}

/// A command that uses some of them.
#[derive(Debug, Serialize)]
struct Next {
    what: &'static str,
    command: String,
}

impl Told {
    fn new(dir: &std::path::Path, plan: &Plan, request: &Request) -> Self {
        let shown = dir.display().to_string();
        let path = |name: &str| dir.join(name).display().to_string();
        let files: Vec<ToldFile> = plan
            .files
            .iter()
            .map(|File { name, kind, role, names, .. }| ToldFile {
                path: path(name),
                kind: *kind,
                role,
                mode: if *kind == Kind::Key { "0600" } else { "0644" },
                names: names.clone(),
            })
            .collect();
        let named = |role: &str| files.iter().find(|file| file.role == role);
        // In single quotes for the shell, where it needs them.
        let quoted = |path: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            if path.chars().all(plain) {
                path.to_owned()
            } else {
                format!("'{}'", path.replace('\'', "'\\''"))
            }
        };
        let pair = |role: &str| {
            let crt = named(role).map_or_else(String::new, |file| file.path.clone());
            (quoted(&crt), quoted(&crt.replace(".crt", ".key")))
        };
        let ca = |name: &str| quoted(&path(name));
        let host = request.names.first().map_or("localhost", |name| name);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };

        let mut next = Vec::new();
        let (crt, key) = pair("server");
        next.push(Next {
            what: "serve collectors that show a certificate",
            command: format!(
                "gateway serve --estate DIR --tls-cert {crt} --tls-key {key} --client-ca {}",
                ca("ca.crt")
            ),
        });
        let (crt, key) = pair("collector");
        next.push(Next {
            what: "ask as a collector",
            command: format!(
                "printf '\\n\\020abcdefghijklmnop' | curl -f --cacert {} --cert {crt} --key {key} -H 'Content-Type: application/x-protobuf' --data-binary @- -o reply https://{host}:4320/v1/opamp",
                ca("ca.crt")
            ),
        });
        if named("aggregator").is_some() {
            let (crt, key) = pair("aggregator");
            next.push(Next {
                what: "gather the evidence of all replicas",
                command: format!(
                    "gateway aggregate --estate DIR --expect-replicas {} --uplink-ca {} --uplink-cert {crt} --uplink-key {key}",
                    request.replicas.len().max(1),
                    ca("uplink-ca.crt"),
                ),
            });
        }
        if let Some(replica) = request.replicas.first() {
            let (crt, key) = pair("replica");
            let label = replica
                .strip_prefix("*.")
                .map_or_else(|| replica.clone(), |rest| format!("NAME.{rest}"));
            next.push(Next {
                what: "serve collectors, and send what they report to the aggregator",
                command: format!(
                    "gateway serve --estate DIR --instance-label {label} --uplink {host}:4322 --uplink-ca {} --uplink-cert {crt} --uplink-key {key}",
                    ca("uplink-ca.crt"),
                ),
            });
        }
        Self { dir: shown, not_after: moment(plan.not_after_ms), files, next }
    }

    fn text(&self) -> String {
        let wide = self.files.iter().map(|file| file.path.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for file in &self.files {
            let what = match (file.kind, file.role) {
                (Kind::Key, _) => "its private key, mode 0600".to_owned(),
                (_, "ca") => "authority of the server and of collectors".to_owned(),
                (_, "uplink-ca") => "authority of the uplink, and of nothing else".to_owned(),
                (_, role) => format!("{role}: {}", file.names.join(", ")),
            };
            text.push_str(&format!("{:wide$}  {what}\n", file.path));
        }
        text.push_str(&format!(
            "\nValid until {}. Keys of authorities sign more certificates: keep them elsewhere.\n",
            self.not_after
        ));
        for Next { what, command } in &self.next {
            text.push_str(&format!("\nTo {what}:\n  {command}\n"));
        }
        text
    }
}
