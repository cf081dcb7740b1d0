//! Connection to `anthill receive` on another host, by the user's own ssh.

use crate::problem::Problem;
use base::digest::{hex, sha256};
use release::acknowledgment::{ServerReport, SiteAddresses};
use release::limits::MANIFEST_BYTES_MAX;
use release::limits::STORE_BUFFER_BYTES;
use release::manifest::{BlobRef, ManifestLine, ManifestReader, difference};
use release::receive_frame::{ContentPlace, FrameKind, GzipAndText, HELLO, STATE_WITH_OWNERS};
use release::release_pointer::{is_label, is_publisher};
use release::store::{
    FrameReader, FrameWriter, ReleaseStore as _, SiteRecords, StoreFolder, read_manifest,
};
use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use wire::content_coding::ContentCoding;

/// Connection to the receiver of a site on another host.
pub(crate) struct Remote {
    /// Host as named by the user.
    pub host: String,
    /// Command in place of `ssh`.
    ssh: String,
    /// Name of the site on the host.
    pub site: String,
    /// True if the user named the site. Otherwise the host names the site.
    pub is_named: bool,
    /// Name of the publisher that the receiver sets, if the receiver sets one.
    pub publisher: Option<String>,
    /// True if the key has the rights `preview`, and so cannot choose the served release.
    pub makes_previews_alone: bool,
    /// True if the receiver takes pointers with the identity of a site. A receiver of an earlier version does not.
    pub takes_site_ids: bool,
    /// Releases of the site.
    pub records: SiteRecords,
    /// Addresses of the site, as far as the host knows them.
    pub addresses: SiteAddresses,
    /// Report of the server on the publication that the pointer names.
    pub report: ServerReport,
    child: Child,
    input: FrameReader<ChildStdout>,
    output: FrameWriter<BufWriter<ChildStdin>>,
}

/// Result of a publication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemoteFlip {
    /// Sequence of the pointer.
    pub sequence: u64,
    /// Report of the server on the publication.
    pub report: ServerReport,
}

/// Contents of a release that a host lacks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offer {
    transfers: Vec<Transfer>,
    /// Bytes that are to be sent.
    pub bytes: u64,
}

/// Content to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Transfer {
    place: ContentPlace,
    content: BlobRef,
    /// Number of the text that the host decodes from the content.
    text: Option<u32>,
}

impl Transfer {
    /// Returns the frame at the start of the content.
    fn head(&self) -> (FrameKind, Vec<u8>) {
        match self.text {
            None => (FrameKind::Blob, self.place.bytes().to_vec()),
            Some(text) => {
                let gzip = self.place.number;
                let both = GzipAndText { gzip, text };
                (FrameKind::GzipAndText, both.bytes().to_vec())
            }
        }
    }
}

impl Remote {
    /// Runs `ssh HOST anthill receive SITE`, and asks for the state of the site. `ssh` is a command of the shell that
    /// takes the place of `ssh`. Without a site, the receiver names the site of the key.
    pub(crate) fn connect(ssh: &str, host: &str, site: Option<&str>) -> Result<Remote, Problem> {
        let failed =
            |error: io::Error| Problem::failure(format!("{host}: cannot run ssh: {error}"));
        let mut child = Command::new("sh")
            // The host is an argument, so the shell does not read it.
            .args(["-c", &format!("exec {ssh} \"$@\""), "ssh", "--", host])
            .args(["anthill", "receive", site.unwrap_or("www")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(output), Some(input)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let mut remote = Remote {
            ssh: ssh.to_owned(),
            host: host.to_owned(),
            site: site.unwrap_or_default().to_owned(),
            is_named: site.is_some(),
            publisher: None,
            makes_previews_alone: false,
            takes_site_ids: false,
            records: SiteRecords::default(),
            addresses: SiteAddresses::default(),
            report: ServerReport::default(),
            child,
            input: FrameReader::new(input),
            output: FrameWriter::new(BufWriter::new(output)),
        };
        remote.write(FrameKind::Hello, HELLO.as_bytes())?;
        remote.write(FrameKind::List, STATE_WITH_OWNERS.as_bytes())?;
        remote.flush()?;
        let hello = remote.read(FrameKind::Hello)?;
        if hello != HELLO.as_bytes() {
            return Err(remote
                .problem("the host has another version of the protocol")
                .help("install the same version of anthill on both sides"));
        }
        let state = remote.read_text(FrameKind::List)?;
        remote.take_state(&state, site)?;
        Ok(remote)
    }

    /// Reads the state of the site.
    fn take_state(&mut self, state: &[u8], wanted: Option<&str>) -> Result<(), Problem> {
        let malformed = |remote: &Remote| remote.problem("the host sent a malformed state");
        let mut text = std::str::from_utf8(state).map_err(|_| malformed(self))?;
        if let Some((STATE_WITH_OWNERS, rest)) = text.split_once('\n') {
            self.takes_site_ids = true;
            text = rest;
        }
        self.addresses = SiteAddresses::parse(text);
        self.report = ServerReport::parse(text);
        let mut word = |keyword: &str| {
            let (line, rest) = text.split_once('\n')?;
            let value = line.strip_prefix(keyword)?.strip_prefix(' ')?;
            text = rest;
            Some(value.to_owned())
        };
        let (site, rights) = (word("site"), word("rights"));
        self.makes_previews_alone = rights.as_deref() == Some("preview");
        self.publisher = word("publisher");
        for keyword in ["address", "preview", "acknowledged", "refused"] {
            word(keyword);
        }
        // A name with control characters could write to the terminal.
        let site = site
            .filter(|site| is_label(site))
            .ok_or_else(|| malformed(self))?;
        let is_strange = |name: &String| !is_publisher(name);
        if self.publisher.as_ref().is_some_and(is_strange) {
            return Err(malformed(self));
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != site) {
            let what = format!("the key publishes the site `{site}`, and not `{wanted}`");
            return Err(self.problem(&what).help(
                "each site needs a key of its own: add a Host with the IdentityFile to ~/.ssh/config, as the page Publishing of the guide shows",
            ));
        }
        let records = SiteRecords::parse(&site, text);
        self.records = records.ok_or_else(|| malformed(self))?;
        self.site = site;
        Ok(())
    }

    /// Returns the manifest of a release of the site, from the host. A release that was swept has an empty text.
    pub(crate) fn manifest(&mut self, release: &[u8; 32]) -> Result<Vec<u8>, Problem> {
        self.write(
            FrameKind::Command,
            format!("manifest {}", hex(release)).as_bytes(),
        )?;
        self.flush()?;
        let text = self.read_text(FrameKind::Manifest)?;
        if text.is_empty() || sha256(&text) == *release {
            Ok(text)
        } else {
            Err(self.problem("the host sent a manifest that differs from its digest"))
        }
    }

    /// Sends the manifest of a release of a local store, and returns the contents that the host lacks.
    pub(crate) fn offer(
        &mut self,
        store: &StoreFolder,
        release: &[u8; 32],
    ) -> Result<Offer, Problem> {
        let text = read_manifest(store, release)
            .map_err(|error| Problem::failure(format!("the release {}: {error}", hex(release))))?;
        self.send_manifest(store, &text)?;
        self.write(FrameKind::Release, release)?;
        self.flush()?;
        let contents = contents(&text);
        let mut needs = Vec::new();
        loop {
            let entries = self.read(FrameKind::Need)?;
            if entries.is_empty() {
                break;
            }
            needs.extend(entries.as_chunks().0.iter().map(ContentPlace::parse));
            if needs.len() > contents.len() {
                return Err(self.problem("the host asks for more contents than the release has"));
            }
        }
        let offer = transfers(&needs, &contents);
        offer.ok_or_else(|| self.problem("the host asks for no content of the release"))
    }

    /// Sends the contents that the host lacks. `sent` gets the number of bytes of each piece.
    pub(crate) fn send(
        &mut self,
        store: &StoreFolder,
        offer: &Offer,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Problem> {
        let mut transfers = offer.transfers.iter();
        transfers.try_for_each(|transfer| self.send_content(store, transfer, sent))
    }

    /// Sends the manifest, as a difference from the served release if the local store has its manifest.
    fn send_manifest(&mut self, store: &StoreFolder, text: &[u8]) -> Result<(), Problem> {
        let served = self.records.served().map(|served| served.pointer.release);
        let known = served.and_then(|served| Some((served, read_manifest(store, &served).ok()?)));
        if let Some((served, old)) = known
            && let (Ok(old), Ok(new)) = (std::str::from_utf8(&old), std::str::from_utf8(text))
        {
            let mut steps = served.to_vec();
            steps.extend_from_slice(difference(old, new).as_bytes());
            if steps.len() < text.len() {
                return self.write(FrameKind::Difference, &steps);
            }
        }
        self.write(FrameKind::Manifest, text)
    }

    fn send_content(
        &mut self,
        store: &StoreFolder,
        transfer: &Transfer,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Problem> {
        let digest = &transfer.content.digest;
        let failed = |error: &dyn std::fmt::Display| {
            Problem::failure(format!("the content {}: {error}", hex(digest)))
        };
        let mut file = store.open_blob(digest).map_err(|error| failed(&error))?;
        file.seek(SeekFrom::Start(transfer.place.offset))
            .map_err(|error| failed(&error))?;
        let (kind, head) = transfer.head();
        self.write(kind, &head)?;
        let mut buffer = vec![0; STORE_BUFFER_BYTES];
        loop {
            let count = file.read(&mut buffer).map_err(|error| failed(&error))?;
            self.write(FrameKind::Data, &buffer[..count])?;
            if count == 0 {
                return Ok(());
            }
            sent(count as u64);
        }
    }

    /// Publishes a release by the text of its pointer. All contents have been sent.
    pub(crate) fn flip(&mut self, pointer: &str) -> Result<RemoteFlip, Problem> {
        self.write(FrameKind::Pointer, pointer.as_bytes())?;
        self.flush()?;
        let answer = self.read(FrameKind::Done)?;
        let answer = String::from_utf8_lossy(&answer);
        let mut lines = answer.lines();
        let sequence = lines
            .next()
            .and_then(|line| line.strip_prefix("sequence ")?.parse().ok());
        self.addresses = SiteAddresses::parse(&answer);
        Ok(RemoteFlip {
            sequence: sequence.ok_or_else(|| self.problem("the host sent a malformed answer"))?,
            report: ServerReport::parse(&answer),
        })
    }

    /// Runs another change in words, and returns the answer.
    pub(crate) fn command(&mut self, text: &str) -> Result<String, Problem> {
        self.write(FrameKind::Command, text.as_bytes())?;
        self.flush()?;
        let answer = self.read(FrameKind::Done)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Ends the session.
    pub(crate) fn end(self) {
        let Remote {
            mut child, output, ..
        } = self;
        // The receiver ends at the end of its input. All results are known by now.
        drop(output);
        let _ = child.wait();
    }

    /// Returns a problem with the name of the host.
    pub(crate) fn problem(&self, what: &str) -> Problem {
        Problem::failure(format!("{}: {what}", self.host))
    }

    /// Returns the refusal of the receiver, with advice about the quota.
    fn refused(&self, reason: &str) -> Problem {
        let problem = self.problem(reason);
        if reason.contains(" the quota is ") {
            problem.help(
                "unpin, unlabel or sweep old releases on the host, or raise --quota in the line of authorized_keys",
            )
        } else {
            problem
        }
    }

    fn write(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), Problem> {
        let written = self.output.write(kind, payload);
        written.map_err(|error| self.broken(&error))
    }

    fn flush(&mut self) -> Result<(), Problem> {
        let flushed = self.output.flush();
        flushed.map_err(|error| self.broken(&error))
    }

    /// Reads the payload of the next frame, which must have a kind.
    fn read(&mut self, expected: FrameKind) -> Result<Vec<u8>, Problem> {
        match self.input.read() {
            Ok(Some((kind, payload))) if kind == expected => Ok(payload.to_vec()),
            Ok(Some((FrameKind::Failed, reason))) => {
                let reason = String::from_utf8_lossy(reason).escape_debug().to_string();
                Err(self.refused(&reason))
            }
            Ok(Some(_)) => Err(self.problem("the host sent an answer to another request")),
            Ok(None) => Err(self.ended()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(self
                .problem("the host sent text instead of an answer")
                .help("a login script of the account must print nothing; `ssh HOST true` shows its output")),
            Err(error) => Err(self.problem(&error.to_string())),
        }
    }

    /// Reads frames of one kind up to the empty one.
    fn read_text(&mut self, kind: FrameKind) -> Result<Vec<u8>, Problem> {
        let mut text = Vec::new();
        loop {
            let piece = self.read(kind)?;
            if piece.is_empty() {
                return Ok(text);
            }
            if text.len() + piece.len() > MANIFEST_BYTES_MAX {
                return Err(self.problem("the host sent a text of more than 32 MiB"));
            }
            text.extend_from_slice(&piece);
        }
    }

    /// Returns the reason for a failed write: the refusal of the receiver, if it sent one.
    fn broken(&mut self, error: &io::Error) -> Problem {
        if error.kind() != io::ErrorKind::BrokenPipe {
            return self.problem(&error.to_string());
        }
        loop {
            match self.input.read() {
                Ok(Some((FrameKind::Failed, reason))) => {
                    let reason = String::from_utf8_lossy(reason).escape_debug().to_string();
                    return self.refused(&reason);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return self.ended(),
            }
        }
    }

    /// Returns the problem after the end of the connection.
    fn ended(&mut self) -> Problem {
        let status = self.child.wait();
        let (ssh, host) = (&self.ssh, &self.host);
        let code = status.as_ref().ok().and_then(|status| status.code());
        let (what, help) = match code {
            // ssh(1): 255 is an error of ssh itself.
            Some(255) => (
                format!("{ssh} could not connect or log in"),
                format!("`{ssh} {host}` must work without a question; the lines above have the reason of ssh. A store in a new folder is written \
                         ./{host}"),
            ),
            // The status of a shell for a missing program (POSIX, sh, 2.8.2).
            Some(127) if ssh != "ssh" => (
                format!("`{ssh}` is no command here, or the account has no program `anthill`"),
                "correct `--ssh`, or the path in the line of authorized_keys".to_owned(),
            ),
            Some(127) => (
                "the account has no program `anthill` at the path of its command".to_owned(),
                "correct the path in the line of authorized_keys; `anthill receive SITE --key-line` on the host prints \
                 the line"
                    .to_owned(),
            ),
            _ => (
                format!(
                    "{ssh} ended too early ({})",
                    status.map_or_else(|error| error.to_string(), |status| status.to_string())
                ),
                "`ssh HOST anthill receive SITE` must run there; the line of `anthill receive SITE --key-line` in \
                 authorized_keys sets the command"
                    .to_owned(),
            ),
        };
        self.problem(&what).help(help)
    }
}

/// Content of a manifest.
struct ListedContent {
    content: BlobRef,
    /// Number of the text of a gzip content.
    text: Option<usize>,
}

/// Returns the contents of a manifest in its order. The manifest has been checked when it was made.
fn contents(text: &[u8]) -> Vec<ListedContent> {
    let lines = ManifestReader::new(text).into_iter().flatten();
    let mut contents: Vec<ListedContent> = Vec::new();
    let mut file = None;
    for line in lines.flatten() {
        let (content, text) = match line {
            ManifestLine::File { content, .. } => {
                file = Some(contents.len());
                (content, None)
            }
            ManifestLine::Coded { coding, content } => {
                (content, file.filter(|_| coding == ContentCoding::Gzip))
            }
            _ => continue,
        };
        contents.push(ListedContent { content, text });
    }
    contents
}

/// Returns the contents to be sent; None if the host needs a content that the manifest lacks. If the host has neither a
/// text nor its gzip content, the gzip content is sent for both.
fn transfers(needs: &[ContentPlace], contents: &[ListedContent]) -> Option<Offer> {
    let places: HashMap<u32, u64> = needs.iter().map(|it| (it.number, it.offset)).collect();
    let mut texts = HashSet::new();
    let mut transfers = Vec::with_capacity(needs.len());
    for place in needs {
        let listed = contents.get(usize::try_from(place.number).ok()?)?;
        let text = listed.text.filter(|_| place.offset == 0);
        let text = text.and_then(|text| u32::try_from(text).ok());
        let text = text.filter(|text| places.get(text) == Some(&0) && texts.insert(*text));
        transfers.push(Transfer {
            place: *place,
            content: listed.content,
            text,
        });
    }
    transfers.retain(|transfer| !texts.contains(&transfer.place.number));
    let mut offer = Offer::default();
    for transfer in &transfers {
        let left = transfer.content.size.checked_sub(transfer.place.offset)?;
        offer.bytes = offer.bytes.saturating_add(left);
    }
    offer.transfers = transfers;
    Some(offer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use release::manifest::ManifestWriter;
    use std::borrow::Cow;

    #[test]
    fn a_missing_text_comes_with_its_gzip_content() {
        let blob = |size: u8| BlobRef {
            size: u64::from(size),
            digest: [size; 32],
        };
        let mut writer = ManifestWriter::default();
        for (name, size) in [("a.html", 10), ("b.html", 20)] {
            writer.push(&ManifestLine::File {
                path: Cow::Borrowed(name.as_bytes()),
                content: blob(size),
                is_hashed: false,
            });
            for (coding, size) in [
                (ContentCoding::Gzip, size + 1),
                (ContentCoding::Br, size + 2),
            ] {
                let content = blob(size);
                writer.push(&ManifestLine::Coded { coding, content });
            }
        }
        let contents = contents(writer.finish().as_bytes());
        let sent = |needs: &[(u32, u64)]| {
            let needs = needs.iter();
            let needs: Vec<_> = needs
                .map(|(number, offset)| ContentPlace {
                    number: *number,
                    offset: *offset,
                })
                .collect();
            let offer = transfers(&needs, &contents)?;
            let sent = offer.transfers.iter().map(|it| (it.place.number, it.text));
            Some((sent.collect::<Vec<_>>(), offer.bytes))
        };
        let all = [(0, 0), (1, 0), (2, 0), (3, 0)];
        let expected = vec![(1, Some(0)), (2, None), (3, None)];
        assert_eq!(sent(&all), Some((expected, 43)));
        // A text whose gzip content is present, or a part of either, is sent as it is.
        let expected = vec![(0, None), (4, None)];
        assert_eq!(sent(&[(0, 0), (4, 0)]), Some((expected, 31)));
        let expected = vec![(0, None), (1, None)];
        assert_eq!(sent(&[(0, 3), (1, 0)]), Some((expected.clone(), 18)));
        assert_eq!(sent(&[(0, 0), (1, 3)]), Some((expected, 18)));
        // A need outside of the manifest, or beyond the end of a content.
        assert_eq!(sent(&[(6, 0)]), None);
        assert_eq!(sent(&[(0, 11)]), None);
    }
}
