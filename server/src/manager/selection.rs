//! Balancer and member that a request selects.

use super::snapshot::Snapshot;
use crate::admin::edited_balancer::{ConfiguredBalancer, EditedBalancer};
use crate::admin::member_name::{find_balancer, find_member};
use crate::config::shown_url;
use balancer::{BalancerReport, MemberReport};

/// Balancer with its edits, and the selected member.
pub(super) struct Selection<'s> {
    /// Balancer of anthill.toml.
    pub(super) configured: &'s ConfiguredBalancer,
    /// Balancer with the edits in force.
    pub(super) edited: EditedBalancer,
    /// State of the balancer.
    pub(super) report: &'s BalancerReport,
    /// Index of the member in `edited`; None for the balancer itself.
    pub(super) member: Option<usize>,
}

impl Snapshot {
    /// Finds a balancer by its name, and a member by its URL, its host and port, or its route. The error is the
    /// answer for the operator.
    pub(super) fn select(
        &self,
        balancer: &str,
        member: Option<&str>,
    ) -> Result<Selection<'_>, String> {
        let names = self.edits.configured.iter().map(|it| &*it.settings.name);
        let at = find_balancer(balancer, &names.collect::<Vec<_>>())?;
        let configured = &self.edits.configured[at];
        let name = &configured.settings.name;
        let mut reports = self.balancers.balancers.iter();
        let report = reports.find(|it| it.settings.name == *name);
        let report = report.ok_or_else(|| format!("error: `{name}` is not served\n"))?;
        let edited = self.edited(configured, report);
        let member = member.map(|typed| {
            let members = edited.settings.members.iter();
            let members = members.map(|it| (it.url.clone(), it.route.clone()));
            find_member(name, typed, &members.collect::<Vec<_>>())
        });
        Ok(Selection {
            member: member.transpose()?,
            configured,
            edited,
            report,
        })
    }

    /// Returns a balancer with the edits in force and the results of the checks.
    pub(super) fn edited(
        &self,
        configured: &ConfiguredBalancer,
        report: &BalancerReport,
    ) -> EditedBalancer {
        let mut edited = self.edits.ledger.edited(configured);
        edited.read_checks(report);
        edited
    }
}

impl Selection<'_> {
    /// Returns the name of the balancer.
    pub(super) fn name(&self) -> &str {
        &self.configured.settings.name
    }

    /// Returns the URL of the member as in anthill.toml.
    pub(super) fn url(&self) -> Option<&str> {
        Some(&self.edited.urls[self.member?])
    }

    /// Returns the state of the member.
    pub(super) fn member_report(&self) -> Option<&MemberReport> {
        let url = self.url()?;
        let mut members = self.report.members.iter();
        members.find(|member| shown_url(&member.url) == url)
    }
}
