//! The processes of a run are started: gateways, then workers, who are told what to prepare.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Run, Stop};
use crate::clock::micros;
use crate::endpoint::{Endpoint, Transport};
use crate::floor::Speed;
use crate::host;
use crate::rehearse::gateway::Process;
use crate::scale::crew::{Worker, own_command};
use crate::scale::options::ScaleError;
use crate::scale::protocol::{Task, ToWorker};
use crate::scale::usage::Kind;

/// How long workers may take to read estate and plan.
const PREPARE_MAX: Duration = Duration::from_secs(120);
/// Gateways that are started at once.
const STARTS_AT_ONCE: usize = 4;

impl Run<'_> {
    pub(super) async fn start_gateways(&mut self) -> Result<(), ScaleError> {
        if self.options.endpoints.is_empty() {
            self.measure_floor();
            while self.gateways.len() < usize::try_from(self.layout.replicas).unwrap_or(usize::MAX)
            {
                let left = usize::try_from(self.layout.replicas).unwrap_or(usize::MAX)
                    - self.gateways.len();
                let starts = (0..left.min(STARTS_AT_ONCE)).map(|_| self.start_gateway());
                for started in futures_util::future::join_all(starts).await {
                    let (process, address, path) = started?;
                    self.count_gateway(&process);
                    self.path = path;
                    self.targets.push(address);
                    self.gateways.push(Some(process));
                }
            }
            return Ok(());
        }
        for url in &self.options.endpoints {
            let endpoint = Endpoint::resolve(url, Some(Transport::Ws), None).await;
            let endpoint =
                endpoint.map_err(|text| ScaleError::Usage(format!("--endpoint: {text}")))?;
            self.targets.push(endpoint.address);
            self.path = endpoint.path;
            self.gateways.push(None);
        }
        if self.targets.iter().all(|target| target.ip().is_loopback()) {
            self.measure_floor();
        }
        Ok(())
    }

    /// Of the machine that carries both ends, while nothing of the run is on it yet: this thread has
    /// nothing else to do.
    fn measure_floor(&mut self) {
        let floor = self.floor.insert(Speed::measure()).to_string();
        self.tell_people(&format!("the kernel's floor: {floor}"));
    }

    /// Another gateway, its address for collectors, and path and query.
    pub(in crate::scale) fn start_gateway(
        &self,
    ) -> impl Future<Output = Result<(Process, SocketAddr, String), ScaleError>> + use<> {
        let own = own_command(self.options);
        let arguments = self.gateway_arguments();
        let log = self.log.clone();
        async move {
            let own = own?;
            let own = own.as_std();
            let mut all: Vec<String> =
                own.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
            all.extend(arguments);
            let program = PathBuf::from(own.get_program());
            let process = Process::start(&program, &all, &log)
                .await
                .map_err(|trouble| ScaleError::Cannot(trouble.to_string()))?;
            let endpoint = Endpoint::resolve(&process.endpoint, Some(Transport::Ws), None).await;
            let endpoint = endpoint.map_err(ScaleError::Cannot)?;
            Ok((process, endpoint.address, endpoint.path))
        }
    }

    fn gateway_arguments(&self) -> Vec<String> {
        let flags = &self.options.gateway_flags;
        let given = |flag: &str| flags.iter().any(|given| given.split('=').next() == Some(flag));
        let mut arguments = vec![
            "leash".to_owned(),
            std::process::id().to_string(),
            self.options.gateway.display().to_string(),
            "serve".to_owned(),
            "--estate".to_owned(),
            self.estate().display().to_string(),
        ];
        // As many threads as there are processors, over all gateways, but one each.
        let workers = host::processors()
            .div_ceil(usize::try_from(self.layout.replicas.max(1)).unwrap_or(1))
            .max(1);
        for (flag, value) in [
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--admin", "127.0.0.1:0".to_owned()),
            ("--workers", workers.to_string()),
            ("--log", "warn".to_owned()),
        ] {
            if !given(flag) {
                arguments.extend([flag.to_owned(), value]);
            }
        }
        arguments.extend(flags.iter().cloned());
        arguments
    }

    pub(in crate::scale) fn count_gateway(&mut self, process: &Process) {
        if let Some(pid) = process.pid() {
            self.usage.add(pid, Kind::Gateway);
        }
    }

    pub(super) async fn start_workers(&mut self) -> Result<(), ScaleError> {
        for number in 0..self.layout.workers {
            let worker = Worker::start(self.options, number, self.sender.clone())?;
            self.usage.add(worker.pid, Kind::Worker);
            self.workers.push(worker);
        }
        let estate = self.estate();
        let loopback = self.targets.iter().all(|target| target.ip().is_loopback());
        let ipv4 = self.targets.iter().all(SocketAddr::is_ipv4);
        for ((number, worker), turn) in (0..).zip(&mut self.workers).zip(&self.schedule) {
            let (first, count) = self.layout.share(number);
            let task = Task {
                collectors: self.options.collectors,
                first,
                count,
                estate: estate.clone(),
                plan: self.options.plan.clone(),
                heartbeat_us: self.options.heartbeat.map(micros),
                apply_delay_us: self
                    .options
                    .apply_delay
                    .map(|(shortest, longest)| (micros(shortest), micros(longest))),
                no_applying: self.options.no_applying,
                targets: self.targets.clone(),
                blocks: self.options.endpoints.is_empty(),
                path: self.path.clone(),
                sources: if loopback && ipv4 { self.layout.sources(number) } else { Vec::new() },
                every_us: turn.every,
                head_window_us: micros(self.options.head_window),
                reply_timeout_us: micros(self.options.reply_timeout),
                reconnect_within_us: self.options.reconnect_within.map(micros),
            };
            let told = worker.tell(&ToWorker::Prepare(Box::new(task))).await;
            told.map_err(|why| ScaleError::Cannot(format!("worker {number}: {why}")))?;
        }
        let workers = self.layout.workers;
        let deadline = self.now().saturating_add(micros(PREPARE_MAX));
        match self.observe(deadline, |run| run.ready == workers).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ScaleError::Cannot(format!(
                "the workers are not prepared after {PREPARE_MAX:?}"
            ))),
            Err(Stop::Interrupted) => Err(ScaleError::Cannot("interrupted".to_owned())),
            Err(Stop::Fault(why)) => Err(ScaleError::Cannot(why)),
        }
    }
}
