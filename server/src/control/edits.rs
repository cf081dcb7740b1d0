//! Edits of balancers and members: executes the operator's commands, keeps the ledger and its state file, and
//! compares the edits with each new configuration.
//!
//! An edit is stored first and applied afterwards. An edit that cannot be stored is refused.

use super::member_edit::EditAnswer;
use super::publish::Publisher;
use crate::admin::command::{EditAction, EditBatch};
use crate::admin::edit_file;
use crate::admin::edit_ledger::{EditLedger, EditState, is_present};
use crate::admin::edit_plan::{EditPlan, EditView};
use crate::admin::edit_report::EditDifferences;
use crate::admin::edited_balancer::{ConfiguredBalancer, EditedBalancer};
use crate::config::{
    self, BalancerRef, Config, RouteConfig, SiteConfig, TargetConfig, parse_member_url, reason,
    shown_url,
};
use crate::control::limits::EDIT_FILE_BYTES_MAX;
use balancer::settings::{BalancerSettings, MemberUrl};
use base::atomic_file;
use base::clock::{monotonic_ms, unix_seconds_now};
use data_plane::upstream::Checker;
use data_plane::upstream::{Balancer, Balancers, Member};
use data_plane::upstream::{log_change, log_doubt};
use data_plane::world::World;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

/// Edits of the served configuration.
#[derive(Clone)]
pub(super) struct Edits {
    /// State file.
    file: PathBuf,
    ledger: Arc<EditLedger>,
    /// Balancers of anthill.toml.
    configured: Arc<Vec<ConfiguredBalancer>>,
    /// Reason why the state file cannot be read. All edits are refused until a reload reads the file.
    read_fault: Option<String>,
    /// Reason why the last edit could not be stored.
    write_fault: Option<String>,
    /// Newest entries about edits that yielded to the configuration, which the state file does not have yet.
    yielded: usize,
}

/// Refusal of an edit.
pub(super) enum EditRefusal {
    /// The edit is dangerous, and waits for the operator's confirmation of the text.
    Asks(String),
    /// The answer for the operator.
    Refused(String),
}

impl From<String> for EditRefusal {
    fn from(answer: String) -> EditRefusal {
        EditRefusal::Refused(answer)
    }
}

impl Edits {
    /// Reads the state file, and changes the members of the configuration by the edits in force. A state file
    /// that cannot be read stays as it is.
    pub(super) fn load(config: &mut Config) -> Edits {
        let edits = Edits {
            file: config.edits_file(),
            ledger: Arc::default(),
            configured: Arc::default(),
            read_fault: Some(String::new()),
            write_fault: None,
            yielded: 0,
        };
        let mut edits = edits.followed_by(config);
        edits.store_yields();
        edits
    }

    /// Returns the edits under a new configuration, and changes the members of the configuration. The present
    /// edits stay as they are.
    pub(super) fn followed_by(&self, config: &mut Config) -> Edits {
        let mut next = self.clone();
        if self.read_fault.is_some() {
            next.read();
        }
        next.configured = Arc::new(configured_balancers(config));
        let is_listener = |url: &MemberUrl| config::listener_of(config, &url.host).is_some();
        let now = unix_seconds_now();
        let configured = &next.configured;
        let ledger = Arc::make_mut(&mut next.ledger);
        next.yielded += ledger.reconcile(configured, is_listener, now);
        for (balancer, configured) in config.balancers.iter_mut().zip(&*next.configured) {
            let edited = next.ledger.unedited(configured);
            if edited.settings.members != balancer.settings.members {
                balancer.set_members(edited.settings.members);
            }
        }
        next
    }

    /// Replaces the edits after a reload, and stores the entries of edits that yielded.
    pub(super) fn replace(&mut self, next: Edits) {
        *self = next;
        self.store_yields();
    }

    fn read(&mut self) {
        let read = atomic_file::read(&self.file).map(|content| {
            if content.len() <= EDIT_FILE_BYTES_MAX {
                edit_file::parse(&content)
            } else {
                Err(edit_file::EditFileError::Damaged)
            }
        });
        self.read_fault = None;
        self.ledger = Arc::default();
        match read {
            Ok(Ok(ledger)) => self.ledger = Arc::new(ledger),
            Ok(Err(fault)) => self.read_fault = Some(fault.to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.read_fault = Some(reason(&error)),
        }
        if let Some(fault) = self.fault() {
            log::error!("{fault}");
        }
    }

    /// Stores entries about edits that yielded to anthill.toml. After a failure the next start finds the same
    /// edits yielding again.
    fn store_yields(&mut self) {
        if self.yielded == 0 {
            return;
        }
        let entries = self.ledger.history.iter().rev().take(self.yielded);
        entries.for_each(|entry| log::info!("an edit yields to anthill.toml: {}", entry.line()));
        match self.store(&self.ledger) {
            Ok(()) => (self.yielded, self.write_fault) = (0, None),
            Err(error) => {
                self.write_fault = Some(reason(&error));
                log::error!(
                    "the edits can't be stored in {}: {error}",
                    self.file.display()
                );
            }
        }
    }

    fn store(&self, ledger: &EditLedger) -> io::Result<()> {
        atomic_file::write(&self.file, edit_file::text(ledger).as_bytes(), 0o600)
    }

    /// Passes the settings with the edits in force to the registry of balancers, for the next configuration of each
    /// balancer.
    pub(super) fn register(&self, balancers: &Balancers) {
        let edited = self.configured.iter().map(|configured| {
            let edited = self.ledger.edited(configured);
            Arc::new(edited.core_settings(&self.configured))
        });
        balancers.set_edited(edited.collect());
    }

    /// Returns the number of edits in force.
    pub(super) fn in_force(&self) -> usize {
        self.ledger.in_force.len()
    }

    /// Returns the reason why edits are refused or cannot be stored.
    pub(super) fn fault(&self) -> Option<String> {
        let file = self.file.display();
        let read = self.read_fault.as_ref();
        let read = read.map(|fault| format!("edits are refused: {file}: {fault}"));
        let write = self.write_fault.as_ref();
        read.or_else(|| write.map(|fault| format!("edits can't be stored: {file}: {fault}")))
    }

    /// Returns the edits for the manager.
    pub(super) fn state(&self) -> EditState {
        EditState {
            ledger: self.ledger.clone(),
            configured: self.configured.clone(),
        }
    }

    pub(super) fn ledger(&self) -> &EditLedger {
        &self.ledger
    }

    /// Returns the differences from anthill.toml.
    pub(super) fn differences(&self) -> EditDifferences<'_> {
        EditDifferences::new(&self.ledger, &self.configured)
    }

    /// Executes the edits of a user, or refuses all of them.
    pub(super) async fn execute(
        &mut self,
        publisher: &mut Publisher,
        batch: &EditBatch,
        user: &str,
    ) -> Result<EditAnswer, EditRefusal> {
        if self.read_fault.is_some() {
            let fault = self.fault().unwrap_or_default();
            let help = "mend or remove the file, then run `anthill reload`";
            return Err(format!("error: {fault}\nhelp: {help}\n").into());
        }
        let view = EditView {
            ledger: &self.ledger,
            configured: &self.configured,
        };
        let at = view.balancer_of(&batch.actions)?;
        let balancer = served(publisher.world(), &self.configured[at].settings.name)?;
        let report = balancer.report(monotonic_ms());
        let mut before = self.ledger.edited(&self.configured[at]);
        before.read_checks(&report);
        view.refuse_newer(&batch.planned, &before)?;
        let plan = view.plan(&batch.actions, at, &before)?;
        if !batch.is_confirmed
            && let Some(danger) = plan.danger(&report)
        {
            return Err(EditRefusal::Asks(danger));
        }
        let first_id = self.ledger.last_id + 1;
        if !plan.changes.is_empty() {
            self.commit(publisher, &plan, &before, &balancer, user)
                .await?;
        }
        let entries = self.ledger.history.iter().filter(|it| it.id >= first_id);
        let lines = entries.map(|it| format!("{} (entry {})", it.line(), it.id));
        Ok(answer(lines.collect(), &balancer, &plan, batch))
    }

    /// Stores the changes of a plan, and applies the changes.
    async fn commit(
        &mut self,
        publisher: &mut Publisher,
        plan: &EditPlan,
        before: &EditedBalancer,
        balancer: &Arc<Balancer>,
        user: &str,
    ) -> Result<(), EditRefusal> {
        let mut next = EditLedger::clone(&self.ledger);
        let now = unix_seconds_now();
        for change in &plan.changes {
            refuse_listener(publisher.config(), &change.target.member, &change.new)?;
        }
        next.record_all(&self.configured[plan.at], &plan.changes, user, now);
        if next.is_full() {
            let help = "write the lines of `anthill balancer differences` into anthill.toml";
            return Err(format!("error: too many edits are in force\nhelp: {help}\n").into());
        }
        let prepared = if plan.changes_membership() {
            Some(self.prepare(publisher, plan.at, &next).await?)
        } else {
            None
        };
        if let Err(error) = self.store(&next) {
            if let Some((_, former)) = prepared {
                publisher.swap_balancers(former);
            }
            let why = reason(&error);
            let refusal = format!(
                "error: the edit can't be stored in {}: {why}\nhelp: nothing was changed\n",
                self.file.display()
            );
            log::error!("an edit can't be stored in {}: {why}", self.file.display());
            self.write_fault = Some(why);
            return Err(refusal.into());
        }
        (self.yielded, self.write_fault) = (0, None);
        self.ledger = Arc::new(next);
        self.register(&publisher.resources().balancers);
        match prepared {
            Some((world, _)) => publisher.publish(world).await,
            None => {
                let settings = plan.after.core_settings(&self.configured);
                let forced = plan.after.forced_checks(before);
                apply(balancer, publisher.checker(), settings, &forced);
            }
        }
        let count = plan.changes.len();
        for entry in self.ledger.history.iter().rev().take(count).rev() {
            log::info!("edit {} by {user}: {}", entry.id, entry.line());
        }
        Ok(())
    }

    /// Builds the World with the members of a ledger. Returns the World and the former balancers of the
    /// configuration, which has the new balancers already.
    async fn prepare(
        &self,
        publisher: &mut Publisher,
        at: usize,
        ledger: &EditLedger,
    ) -> Result<(World, Vec<config::BalancerConfig>), EditRefusal> {
        let configured = &self.configured[at];
        let mut balancers = publisher.config().balancers.clone();
        let mut named = balancers.iter_mut();
        let balancer = named.find(|it| it.settings.name == configured.settings.name);
        let members = ledger.unedited(configured).settings.members;
        if let Some(balancer) = balancer {
            balancer.set_members(members);
        }
        let former = publisher.swap_balancers(balancers);
        let served = Arc::clone(publisher.world());
        match publisher.rebuild(served).await {
            Ok(world) => Ok((world, former)),
            Err(error) => {
                publisher.swap_balancers(former);
                Err(format!("{error}\n").into())
            }
        }
    }
}

/// Returns the balancers of a configuration: the balancers of `[[balancer]]` in the order of the file, then the
/// balancers of routes with `proxy`.
fn configured_balancers(config: &Config) -> Vec<ConfiguredBalancer> {
    let named = config.balancers.iter().map(|balancer| {
        let heartbeat = balancer.heartbeat.as_ref();
        ConfiguredBalancer {
            settings: balancer.settings.clone(),
            connections: balancer.connections,
            heartbeat: heartbeat.map(|address| address.get_ref().to_string()),
            is_own: false,
            paths: paths_of(config, &balancer.settings.name),
        }
    });
    let own = config.own_balancers().map(|(name, balancer)| {
        let mut settings = balancer.settings.clone();
        let paths = vec![name.clone()];
        settings.name = name.into();
        ConfiguredBalancer {
            settings,
            connections: balancer.connections,
            heartbeat: None,
            is_own: true,
            paths,
        }
    });
    named.chain(own).collect()
}

/// Returns the routes that use the balancer of a name.
fn paths_of(config: &Config, balancer: &str) -> Vec<String> {
    let routes = config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter();
        routes.map(move |route| (site, route))
    });
    let of_balancer = routes.filter(|(_, route)| match &route.target {
        Some(TargetConfig::Proxy(proxy)) => match &proxy.balancer {
            BalancerRef::Named(name) => name.get_ref() == balancer,
            BalancerRef::Own(_) => false,
        },
        _ => false,
    });
    let path =
        |(site, route): (&SiteConfig, &RouteConfig)| site.own_balancer_name(route.path.get_ref());
    of_balancer.map(path).collect()
}

/// Returns the balancer of the World with a name.
fn served(world: &World, name: &str) -> Result<Arc<Balancer>, String> {
    let mut plans = world.balancers.iter();
    let plan = plans.find(|plan| plan.balancer().name() == name);
    let balancer = plan.map(|plan| Arc::clone(plan.balancer()));
    balancer.ok_or_else(|| format!("error: the balancer `{name}` is not served\n"))
}

/// Refuses to add an address of the server itself.
fn refuse_listener(config: &Config, url: &str, membership: &str) -> Result<(), String> {
    let url = parse_member_url(url)
        .ok()
        .filter(|_| is_present(membership));
    let listener = url.and_then(|url| config::listener_of(config, &url.host));
    match listener {
        None => Ok(()),
        Some(listener) => Err(format!(
            "error: the member is this server, which listens on {listener}\n\
             help: write the address of the application, which needs a port of its own\n"
        )),
    }
}

/// Puts edited settings and results of checks in force at a balancer, and logs the changed states of members.
fn apply(
    balancer: &Balancer,
    checker: &Checker,
    settings: BalancerSettings,
    forced: &[(MemberUrl, bool)],
) {
    let now_ms = monotonic_ms();
    let report = balancer.edit(settings, now_ms);
    for (member, change) in report.changes {
        log_change(balancer.name(), member.url(), change);
    }
    let mut doubts = Vec::from_iter(report.doubt);
    for (url, is_failed) in forced {
        let report = balancer.force_checks(url, *is_failed, now_ms);
        if let Some(change) = report.change {
            log_change(balancer.name(), url, change);
        }
        doubts.extend(report.doubt);
    }
    doubts
        .into_iter()
        .for_each(|doubt| log_doubt(balancer, doubt));
    checker.wake();
}

/// Returns the answer to an edit: the state of the member for a change of the state alone, else the entries.
fn answer(
    lines: Vec<String>,
    balancer: &Arc<Balancer>,
    plan: &EditPlan,
    batch: &EditBatch,
) -> EditAnswer {
    let is_state = match &batch.actions[..] {
        [EditAction::Set { values, .. }] => values.iter().all(|(name, _)| name == "state"),
        _ => false,
    };
    let url = plan.url.as_deref().filter(|_| is_state);
    let member = url.and_then(|url| member_of(balancer, url));
    EditAnswer::new(lines, Arc::clone(balancer), member, batch.wait_seconds)
}

/// Returns the member of a balancer with a URL as in anthill.toml.
fn member_of(balancer: &Balancer, url: &str) -> Option<Arc<Member>> {
    let mut members = balancer.members().into_iter();
    members.find(|member| shown_url(member.url()) == url)
}
