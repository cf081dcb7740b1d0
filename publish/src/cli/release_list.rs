//! List of the releases of a site, as a table and as JSON.

use super::output::PREVIEW_DIGITS;
use crate::key::is_verified;
use crate::release::{Changes, ReleaseFile, compare};
use crate::text;
use base::digest::hex;
use release::acknowledgment::ServerReport;
use release::store::{Publication, SiteRecords};
use wire::json::quoted;

/// Line of the list.
struct ListLine {
    release: [u8; 32],
    publication: Option<Publication>,
    /// Number of files and their bytes; None for a release that is swept.
    size: Option<(usize, u64)>,
    /// Changes against the publication before.
    changes: Option<Changes>,
    marks: Vec<String>,
}

/// Function that returns the files of a release; None for a release without a readable manifest.
pub(super) type FilesOf<'f> = dyn FnMut(&[u8; 32]) -> Option<Vec<ReleaseFile>> + 'f;

/// Returns the list, the newest release first, and labelled or pinned releases without a publication last.
fn lines(
    records: &SiteRecords,
    report: &ServerReport,
    files_of: &mut FilesOf<'_>,
) -> Vec<ListLine> {
    let mut lines = Vec::new();
    let mut before: Option<Vec<ReleaseFile>> = None;
    for (sequence, publication) in &records.publications {
        let release = publication.pointer.release;
        let files = files_of(&release);
        let changes = match (&before, &files) {
            (Some(before), Some(files)) => Some(compare(before, files, |_, _| ())),
            _ => None,
        };
        let state = if records.withdrawn.contains(&release) {
            None
        } else {
            state(records, report, *sequence)
        };
        lines.push(ListLine {
            release,
            publication: Some(publication.clone()),
            size: files.as_deref().map(size),
            changes,
            marks: marks(records, &release, state),
        });
        before = files;
    }
    lines.reverse();
    for release in records.releases() {
        if !lines.iter().any(|line| line.release == release) {
            lines.push(ListLine {
                release,
                publication: None,
                size: files_of(&release).as_deref().map(size),
                changes: None,
                marks: marks(records, &release, None),
            });
        }
    }
    lines
}

fn size(files: &[ReleaseFile]) -> (usize, u64) {
    let bytes = files.iter().map(|file| file.contents.content.size).sum();
    (files.len(), bytes)
}

/// Returns the mark of a publication by the report of the server. A refusal of the pointer does not concern another
/// sequence, and the server acknowledges sequences in their order.
fn state(records: &SiteRecords, report: &ServerReport, sequence: u64) -> Option<&'static str> {
    let is_pointed = records.served == Some(sequence);
    let acknowledged = report.acknowledged.filter(|it| *it > 0);
    match acknowledged {
        _ if is_pointed && report.refusal.is_some() => Some("refused"),
        Some(acknowledged) if acknowledged == sequence => Some("served"),
        _ if is_pointed => Some("published"),
        Some(acknowledged) if acknowledged < sequence => Some("never served"),
        _ => None,
    }
}

fn marks(records: &SiteRecords, release: &[u8; 32], state: Option<&str>) -> Vec<String> {
    let mut marks: Vec<String> = state.into_iter().map(str::to_owned).collect();
    if records.pins.contains(release) {
        marks.push("pinned".to_owned());
    }
    if records.withdrawn.contains(release) {
        marks.push("withdrawn".to_owned());
    }
    let labels = records.labels.iter().filter(|(_, its)| *its == release);
    marks.extend(
        labels.map(|(label, _)| match records.label_owners.get(label) {
            None => format!("label {label}"),
            Some(owner) => format!("label {label} of {owner}"),
        }),
    );
    marks
}

/// Returns the list as a table.
pub(super) fn table(
    records: &SiteRecords,
    report: &ServerReport,
    files_of: &mut FilesOf<'_>,
) -> String {
    let heads = [
        "SEQUENCE",
        "TIME",
        "PUBLISHER",
        "RELEASE",
        "FILES",
        "SIZE",
        "CHANGES",
        "MARKS",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    for line in lines(records, report, files_of) {
        let dash = || "-".to_owned();
        let (sequence, time, publisher) = match &line.publication {
            None => (dash(), dash(), dash()),
            Some(publication @ Publication { pointer, key, .. }) => (
                pointer.sequence.to_string(),
                text::time(pointer.time),
                match key {
                    None => pointer.publisher.clone(),
                    Some(_) if is_verified(publication) => {
                        format!("{} (signed)", pointer.publisher)
                    }
                    Some(_) => format!("{} (signature not verified)", pointer.publisher),
                },
            ),
        };
        let (files, bytes) = line.size.unzip();
        let changes = line
            .changes
            .map(|it| format!("+{} ~{} -{}", it.added, it.changed, it.removed));
        rows.push([
            sequence,
            time,
            publisher,
            hex(&line.release)[..PREVIEW_DIGITS].to_owned(),
            files.map_or_else(dash, |files| files.to_string()),
            bytes.map_or_else(dash, text::bytes),
            changes.unwrap_or_else(dash),
            line.marks.join(", "),
        ]);
    }
    let widths: [usize; 8] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
    let mut table = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

/// Returns the list as a JSON array.
pub(super) fn json(
    records: &SiteRecords,
    report: &ServerReport,
    files_of: &mut FilesOf<'_>,
) -> String {
    let objects = lines(records, report, files_of).into_iter().map(|line| {
        let mut members = vec![format!("\"release\":\"{}\"", hex(&line.release))];
        if let Some(publication @ Publication { pointer, key, .. }) = &line.publication {
            members.push(format!("\"sequence\":{}", pointer.sequence));
            members.push(format!("\"time\":{}", pointer.time));
            members.push(format!("\"publisher\":{}", quoted(&pointer.publisher)));
            if let Some(key) = key {
                let is_verified = is_verified(publication);
                members.push(format!(
                    "\"key\":\"{}\",\"verified\":{is_verified}",
                    hex(key)
                ));
            }
        }
        if let Some((files, bytes)) = line.size {
            members.push(format!("\"files\":{files},\"bytes\":{bytes}"));
        }
        if let Some(changes) = line.changes {
            members.push(format!(
                "\"added\":{},\"changed\":{},\"removed\":{}",
                changes.added, changes.changed, changes.removed
            ));
        }
        let marks: Vec<String> = line.marks.iter().map(|mark| quoted(mark)).collect();
        members.push(format!("\"marks\":[{}]", marks.join(",")));
        format!("{{{}}}", members.join(","))
    });
    let objects: Vec<String> = objects.collect();
    format!("[{}]\n", objects.join(",\n"))
}
