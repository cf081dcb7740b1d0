//! Problems of a running server, for `anthill status` and the manager page. Pure.

use crate::admin::limits::{
    MANAGER_CERTIFICATE_RENEWED_DAYS_MIN, MANAGER_TEMPERATURE_MILLIDEGREES_MAX,
    MANAGER_USE_WARNING_PERCENT, RESTART_WARNED_SECONDS,
};
use crate::admin::metrics::Metrics;
use crate::admin::status::{CertificateStatus, ReleaseStatus, Status};
use crate::admin::text_table::duration;
use balancer::{BalancerReport, MemberReport, MemberState};
use base::machine::{MachineFacts, RASPBERRY_CONDITIONS};
use data_plane::limits::MANAGER_CERTIFICATE_DAYS_MIN;

/// Something wrong with the server.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Problem {
    /// Fault: requests fail, or will fail soon.
    Error(String),
    /// Condition that an operator should look at.
    Warning(String),
}

/// Returns the members that the operator has not switched off and that get no requests, with their balancers.
pub(crate) fn members_down(balancers: &[BalancerReport]) -> Vec<(&str, &MemberReport)> {
    let members = balancers.iter().flat_map(|balancer| {
        let members = balancer.members.iter();
        members.map(|member| (&*balancer.settings.name, member))
    });
    let is_down = |it: &MemberReport| match it.state {
        MemberState::Ejected => !it.awaits_trial,
        state => state == MemberState::CheckFailed,
    };
    members.filter(|(_, it)| is_down(it)).collect()
}

/// Returns the problems of the server, without the members that are down.
pub(crate) fn problems(metrics: &Metrics<'_>) -> Vec<Problem> {
    let status = metrics.status;
    let mut found = Vec::new();
    for certificate in &status.certificates {
        found.extend(of_certificate(certificate));
        found.extend(of_missing_names(certificate));
    }
    for balancer in metrics.balancers {
        of_balancer(balancer, &mut found);
    }
    of_status(status, &mut found);
    of_machine(&metrics.facts.machine, &mut found);
    let process = &metrics.facts.process;
    let use_of_descriptors = (process.descriptors, process.descriptors_max);
    found.extend(nearly_used_up("Descriptors", use_of_descriptors));
    found
}

fn of_certificate(certificate: &CertificateStatus) -> Option<Problem> {
    let names = certificate.names.join(", ");
    let days = certificate.days_left;
    let failure = certificate.renewal.as_ref();
    let failure = failure.and_then(|renewal| renewal.failure.as_ref());
    let days_min = match certificate.renewal {
        Some(_) => MANAGER_CERTIFICATE_RENEWED_DAYS_MIN,
        None => MANAGER_CERTIFICATE_DAYS_MIN,
    };
    if days < 0 {
        return Some(Problem::Error(format!(
            "the certificate of {names} has expired"
        )));
    }
    if let Some((_, reason)) = failure.filter(|_| certificate.awaits_certificate) {
        let text = format!(
            "{names} has a self-signed certificate, of which browsers warn, because the last request for one failed: {reason}"
        );
        return Some(Problem::Error(text));
    }
    if let Some((_, reason)) = failure {
        let text =
            format!("the certificate of {names} could not be renewed, days left: {days}: {reason}");
        return Some(Problem::Error(text));
    }
    if certificate.awaits_certificate {
        let text = format!("{names} has a self-signed certificate until one is issued");
        return Some(Problem::Warning(text));
    }
    (days < days_min).then(|| {
        Problem::Warning(format!(
            "the certificate of {names} ends soon, days left: {days}"
        ))
    })
}

/// Returns the fault of a certificate that lacks names of its site: browsers refuse the names.
fn of_missing_names(certificate: &CertificateStatus) -> Option<Problem> {
    let missing = certificate.missing_names.join(", ");
    (!missing.is_empty()).then(|| {
        Problem::Error(format!(
            "the certificate of {} does not name {missing}, so browsers refuse the site there",
            certificate.names.join(", ")
        ))
    })
}

/// Returns the problem of a site that answers 503 for lack of a release. A refused release has a reason of its own.
fn of_release(release: &ReleaseStatus) -> Option<Problem> {
    let site = &release.site;
    match &release.release {
        _ if release.refusal.is_some() => None,
        None if release.serves_folder => None,
        None => Some(Problem::Error(format!(
            "{site} has no release, so the site answers 503: publish one with `anthill publish`"
        ))),
        Some(_) if release.is_withdrawn => Some(Problem::Warning(format!(
            "the release of {site} is withdrawn, so the site answers 503 until the next publication"
        ))),
        Some(_) => None,
    }
}

fn of_balancer(balancer: &BalancerReport, found: &mut Vec<Problem>) {
    if balancer.are_checks_doubted {
        let text = format!(
            "balancer {}: {}",
            balancer.settings.name,
            balancer.doubt_text()
        );
        found.push(Problem::Warning(text));
    }
    // Without requests nothing can end the ejection of a member that works again.
    let members = balancer.members.iter();
    for member in members.filter(|it| it.state == MemberState::Ejected && it.awaits_trial) {
        found.push(Problem::Warning(format!(
            "{}: {}: ejected, and passes its checks again: the next request tries the member",
            balancer.settings.name, member.url
        )));
    }
}

/// Returns the last restart by the supervisor, for a day.
fn of_restarts(status: &Status) -> Option<Problem> {
    let restarts = status.restarts.as_ref().filter(|it| it.count > 0)?;
    (status.up_seconds < RESTART_WARNED_SECONDS).then(|| {
        let (since, reason) = (duration(status.up_seconds), &restarts.reason);
        Problem::Warning(format!(
            "the supervisor started the server again {since} ago ({reason}), restart {} since its own start: the error log has the lines before",
            restarts.count
        ))
    })
}

fn of_status(status: &Status, found: &mut Vec<Problem>) {
    let faults = status.edits_fault.iter().chain(&status.refusals);
    let faults = faults.chain(&status.unreachable_backends);
    found.extend(faults.cloned().map(Problem::Error));
    for (index, seconds) in &status.silent_workers {
        found.push(Problem::Error(format!(
            "worker {index} (thread anthill-{index}) has been silent for {seconds} s, so its connections wait: start the server again if the worker stays silent"
        )));
    }
    found.extend(of_restarts(status));
    for deployment in &status.deployments {
        if let Some((_, reason)) = &deployment.failure {
            let text = format!("the deployment of {} failed: {reason}", deployment.site);
            found.push(Problem::Error(text));
        } else if !deployment.has_branch {
            let (site, branch) = (&deployment.site, &deployment.branch);
            let text = format!(
                "{site} is not deployed: {} has no branch {branch}",
                deployment.repository
            );
            found.push(Problem::Warning(text));
        }
    }
    found.extend(status.releases.iter().filter_map(of_release));
    for (name, reason) in &status.unmanaged_names {
        let text = format!(
            "{name} gets no certificate: {reason}; browsers warn of its self-signed one, so write a public name in `names`, \
             or set `certificate`"
        );
        found.push(Problem::Warning(text));
    }
    let doubtful = status.doubtful_files.iter();
    found.extend(doubtful.map(|files| Problem::Warning(files.text.clone())));
    let bodies = (status.body_bytes as u64, status.body_bytes_max as u64);
    found.extend(nearly_used_up("Memory for bodies", bodies));
    let panics = status.counters.iter().find(|(name, _)| *name == "panics");
    for (name, count) in [
        ("log lines lost", status.log_lines_lost),
        ("datagrams of HTTP/3 lost", status.datagrams_lost),
        (
            "faults of the program (panics)",
            panics.map_or(0, |it| it.1),
        ),
    ] {
        if count > 0 {
            found.push(Problem::Warning(format!("{name} since the start: {count}")));
        }
    }
}

fn of_machine(machine: &MachineFacts, found: &mut Vec<Problem>) {
    for (zone, sensor, millidegrees) in &machine.temperatures {
        if *millidegrees >= MANAGER_TEMPERATURE_MILLIDEGREES_MAX {
            let degrees = millidegrees / 1_000;
            let text = format!("the machine is hot: {degrees} \u{b0}C ({zone}, {sensor})");
            found.push(Problem::Warning(text));
        }
    }
    let flags = machine.raspberry_flags.unwrap_or(0);
    for (bit, condition) in RASPBERRY_CONDITIONS.iter().enumerate() {
        let condition = condition.replace('_', " ");
        if flags >> bit & 1 == 1 {
            found.push(Problem::Error(format!(
                "the machine is limited: {condition}"
            )));
        } else if flags >> (bit + 16) & 1 == 1 {
            let text = format!("the machine was limited since its start: {condition}");
            found.push(Problem::Warning(text));
        }
    }
}

/// Returns a warning if most of a limited resource is in use.
fn nearly_used_up(name: &str, (part, whole): (u64, u64)) -> Option<Problem> {
    let percent = part.saturating_mul(100).checked_div(whole)?;
    (percent >= MANAGER_USE_WARNING_PERCENT)
        .then(|| Problem::Warning(format!("{name}: {percent} % in use")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::RenewalStatus;

    fn certificate(days_left: i64) -> CertificateStatus {
        CertificateStatus {
            names: vec!["a.org".to_owned()],
            days_left,
            not_after: 0,
            is_self_signed: false,
            missing_names: Vec::new(),
            awaits_certificate: false,
            renewal: None,
        }
    }

    #[test]
    fn a_site_without_a_release_and_a_name_without_a_certificate_are_errors() {
        let text = |problem: Option<Problem>| match problem {
            Some(Problem::Error(text)) => format!("error: {text}"),
            Some(Problem::Warning(text)) => format!("warning: {text}"),
            None => String::new(),
        };
        let mut release = ReleaseStatus {
            site: "www".to_owned(),
            release: None,
            is_withdrawn: false,
            serves_folder: false,
            since: 60,
            refusal: None,
        };
        assert_eq!(
            text(of_release(&release)),
            "error: www has no release, so the site answers 503: publish one with `anthill publish`"
        );
        release.serves_folder = true;
        assert_eq!(of_release(&release), None, "the folder is served");
        release.serves_folder = false;
        release.refusal = Some("the pointer is wrong".to_owned());
        assert_eq!(of_release(&release), None, "the refusal is told already");
        release.refusal = None;
        release.release = Some(("ab".repeat(32), 7));
        assert_eq!(of_release(&release), None);
        release.is_withdrawn = true;
        assert_eq!(
            text(of_release(&release)),
            "warning: the release of www is withdrawn, so the site answers 503 until the next publication"
        );
        let mut certificate = certificate(90);
        assert_eq!(of_missing_names(&certificate), None);
        certificate.missing_names = vec!["www.a.org".to_owned()];
        assert_eq!(
            text(of_missing_names(&certificate)),
            "error: the certificate of a.org does not name www.a.org, so browsers refuse the site there"
        );
    }

    #[test]
    fn certificates_are_judged_by_their_days_and_their_renewal() {
        let is_error = |problem| matches!(problem, Some(Problem::Error(_)));
        let is_warning = |problem| matches!(problem, Some(Problem::Warning(_)));
        assert!(is_error(of_certificate(&certificate(-1))));
        assert!(is_warning(of_certificate(&certificate(0))));
        let enough = certificate(MANAGER_CERTIFICATE_DAYS_MIN);
        assert_eq!(of_certificate(&enough), None);
        let renewal = |failure| Some(RenewalStatus { next: 0, failure });
        let mut renewed = certificate(4);
        renewed.renewal = renewal(None);
        assert_eq!(of_certificate(&renewed), None, "a certificate of 6 days");
        renewed.renewal = renewal(Some((0, "no answer".to_owned())));
        assert!(is_error(of_certificate(&renewed)));
    }

    #[test]
    fn conditions_of_the_machine_are_told_once() {
        let machine = |raspberry_flags, degrees| MachineFacts {
            temperatures: vec![("thermal_zone0".to_owned(), "cpu".to_owned(), degrees)],
            raspberry_flags,
            throttle_events: None,
        };
        let count = |machine: &MachineFacts| {
            let mut found = Vec::new();
            of_machine(machine, &mut found);
            found.len()
        };
        assert_eq!(count(&machine(None, 48_000)), 0);
        assert_eq!(count(&machine(Some(0), 85_000)), 1);
        assert_eq!(count(&machine(Some(0x5_0005), 48_000)), 2);
        assert_eq!(count(&machine(Some(0x4_0000), 48_000)), 1);
    }

    #[test]
    fn a_resource_is_told_before_it_is_used_up() {
        assert_eq!(nearly_used_up("Places", (0, 0)), None);
        assert_eq!(nearly_used_up("Places", (89, 100)), None);
        assert!(nearly_used_up("Places", (90, 100)).is_some());
    }
}
