//! Session of one publisher: its requests in their order.

use super::error::ReceiveError;
use super::incoming::{Both, IncomingContent, not_written};
use super::incoming_manifest::IncomingText;
use super::options::ReceiveOptions;
use super::rights::Rights;
use super::upload::Upload;
use crate::receive::limits::{
    GZIP_CONTENTS_VERIFIED_MAX, RECEIVE_UNSYNCED_BYTES_MAX, RECEIVE_UNSYNCED_CONTENTS_MAX,
};
use base::clock::unix_seconds_now;
use base::digest::{Digest, from_hex, hex};
use base::sys;
use flate2::bufread;
use flate2::write::GzDecoder;
use release::acknowledgment::{ServerReport, SiteAddresses, wait_until_served};
use release::limits::STORE_BUFFER_BYTES;
use release::manifest::{BlobRef, ManifestLine, ManifestReader};
use release::receive_frame::{ContentPlace, FrameKind, GzipAndText, HELLO, STATE_WITH_OWNERS};
use release::release_pointer::ReleasePointer;
use release::store::{
    Flip, FrameReader, FrameWriter, LabelEditor, QuotaAccount, RecordsVersion, ReleaseMark,
    ReleaseStore as _, SiteRecords, SiteWriter, StoreFolder, StoreWriteError, StoreWriter,
    disk_bytes, read_manifest, record_received, release_contents, sweep_received, verify_content,
};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::path::PathBuf;
use wire::content_coding::ContentCoding;

/// Beginning of the publisher's name for a release that a push into a repository of this server made.
const PUSHER: &str = "push@";
/// Seconds of a day.
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Settings, store and account of a session.
#[derive(Copy, Clone)]
pub(super) struct SessionResources<'s> {
    pub(super) options: &'s ReceiveOptions,
    pub(super) store: &'s StoreWriter,
    pub(super) account: &'s QuotaAccount<'s>,
}

/// Session of one publisher. While the session waits for the publisher, a sweep may run.
pub(super) struct Session<'s, R: Read, W: Write> {
    options: &'s ReceiveOptions,
    store: &'s StoreWriter,
    account: &'s QuotaAccount<'s>,
    input: FrameReader<R>,
    output: &'s mut FrameWriter<W>,
    /// Sequence of the pointer that the publisher knows.
    seen: Option<u64>,
    upload: Option<Upload>,
    /// Bytes of completed contents since the last sync of the store.
    unsynced: u64,
    /// Completed contents that no release and no record of the site has.
    unrecorded: Vec<[u8; 32]>,
}

/// Manifest on its way, whole or as a difference.
struct ManifestPieces<'s> {
    whole: IncomingText<'s>,
    difference: IncomingText<'s>,
}

impl<'s, R: Read, W: Write> Session<'s, R, W> {
    /// Returns a session before its first frame.
    pub(super) fn new(
        resources: SessionResources<'s>,
        input: FrameReader<R>,
        output: &'s mut FrameWriter<W>,
    ) -> Session<'s, R, W> {
        let SessionResources {
            options,
            store,
            account,
        } = resources;
        Session {
            options,
            store,
            account,
            input,
            output,
            seen: None,
            upload: None,
            unsynced: 0,
            unrecorded: Vec::new(),
        }
    }

    /// Answers requests until the stream ends. The contents of a broken upload are recorded for the next session.
    pub(super) fn run(mut self) -> Result<(), ReceiveError> {
        let done = self.answer_all();
        self.record_contents().map_err(ReceiveError::from).and(done)
    }

    fn answer_all(&mut self) -> Result<(), ReceiveError> {
        match next_frame(self.store, &mut self.input)? {
            Some((FrameKind::Hello, text)) if text == HELLO.as_bytes() => {}
            Some((FrameKind::Hello, _)) => {
                return Err(ReceiveError::Protocol(
                    "this program speaks version 1 of the protocol: use a publisher of the same version",
                ));
            }
            Some(_) => return Err(ReceiveError::Protocol("a session begins with a greeting")),
            None => return Ok(()),
        }
        self.output.write(FrameKind::Hello, HELLO.as_bytes())?;
        self.output.flush()?;
        let mut pieces = self.no_pieces();
        while let Some((kind, payload)) = next_frame(self.store, &mut self.input)? {
            match kind {
                FrameKind::Manifest => pieces.whole.append(payload)?,
                FrameKind::Difference => pieces.difference.append(payload)?,
                kind => {
                    let payload = payload.to_vec();
                    let none = self.no_pieces();
                    self.answer(kind, &payload, std::mem::replace(&mut pieces, none))?;
                }
            }
        }
        Ok(())
    }

    fn no_pieces(&self) -> ManifestPieces<'s> {
        let text = || IncomingText::new(self.store, self.account);
        ManifestPieces {
            whole: text(),
            difference: text(),
        }
    }

    fn answer(
        &mut self,
        kind: FrameKind,
        payload: &[u8],
        pieces: ManifestPieces<'s>,
    ) -> Result<(), ReceiveError> {
        match kind {
            FrameKind::List => self.list(payload)?,
            FrameKind::Release => self.begin_upload(payload, pieces)?,
            FrameKind::Blob => return self.content(payload),
            FrameKind::GzipAndText => return self.gzip_and_text(payload),
            FrameKind::Pointer => self.publish(payload)?,
            FrameKind::Command => {
                let text = std::str::from_utf8(payload);
                let text = text.map_err(|_| ReceiveError::Protocol("a command is no text"))?;
                self.command(text)?;
            }
            _ => return Err(ReceiveError::Protocol("the frame has no place here")),
        }
        Ok(self.output.flush()?)
    }

    /// Answers the request for the state of the site. A publisher that asks for the second version of the state gets the
    /// line of the version first.
    fn list(&mut self, wanted: &[u8]) -> Result<(), ReceiveError> {
        let records = self.records()?;
        self.seen = records.served;
        let (mut text, version) = if wanted == STATE_WITH_OWNERS.as_bytes() {
            (format!("{STATE_WITH_OWNERS}\n"), RecordsVersion::WithOwners)
        } else {
            (String::new(), RecordsVersion::First)
        };
        let (site, rights) = (&self.options.site, self.options.rights.word());
        text.push_str(&format!("site {site}\nrights {rights}\n"));
        if let Some(publisher) = &self.options.publisher {
            text.push_str(&format!("publisher {publisher}\n"));
        }
        let file = self.acknowledgment();
        text.push_str(&SiteAddresses::read(&file).text());
        if let Some(served) = records.served() {
            let pointer = &served.pointer;
            let report = ServerReport::read(&file, &pointer.release, pointer.sequence);
            text.push_str(&report.text());
        }
        text.push_str(&records.text(version));
        Ok(self.output.write_text(FrameKind::List, text.as_bytes())?)
    }

    /// Takes a manifest, and answers with the missing contents.
    fn begin_upload(
        &mut self,
        release: &[u8],
        pieces: ManifestPieces<'s>,
    ) -> Result<(), ReceiveError> {
        let release = <[u8; 32]>::try_from(release)
            .map_err(|_| ReceiveError::Protocol("a release has a digest of 32 bytes"))?;
        let manifest = if pieces.difference.is_empty() {
            pieces.whole
        } else {
            drop(pieces.whole);
            let made = pieces.difference.apply(|base| self.open_manifest(base))?;
            // The draft of the difference is no part of the release.
            drop(pieces.difference);
            made
        };
        let manifest = manifest.into_manifest(&release)?;
        let mut upload = Upload::new(manifest, release, self.store, &self.options.site)?;
        let needs = match self.reserve(&mut upload) {
            Err(error) if self.made_room(&error)? => {
                // Contents that the store had are perhaps gone.
                let manifest = std::mem::take(&mut upload.manifest);
                upload = Upload::new(manifest, release, self.store, &self.options.site)?;
                self.reserve(&mut upload)?
            }
            needs => needs?,
        };
        let needs: Vec<u8> = needs.iter().flat_map(|place| place.bytes()).collect();
        self.upload = Some(upload);
        // A frame has whole entries.
        for entries in needs.chunks(ContentPlace::BYTES * 4_096) {
            self.output.write(FrameKind::Need, entries)?;
        }
        Ok(self.output.write(FrameKind::Need, b"")?)
    }

    /// Reserves the bytes of the missing contents, and returns the missing contents.
    fn reserve(&self, upload: &mut Upload) -> Result<Vec<ContentPlace>, StoreWriteError> {
        let needs = upload.needs(self.store, &self.options.draft_owner());
        upload.unreceived = upload.missing_bytes(&needs);
        self.account.reserve_upload(upload.unreceived)?;
        Ok(needs)
    }

    /// Removes the contents that ended sessions sent and that no release has, if their room is enough for an upload beyond the
    /// quota. Returns true after a removal.
    fn made_room(&self, error: &StoreWriteError) -> Result<bool, StoreWriteError> {
        let StoreWriteError::Quota { needed, quota } = error else {
            return Ok(false);
        };
        self.store.leave_lock();
        let bytes = needed.saturating_sub(*quota);
        let swept = sweep_received(self.store.reader(), bytes, unix_seconds_now());
        self.store.take_lock()?;
        // A store in use keeps its contents, and the upload is refused.
        Ok(swept.unwrap_or(false))
    }

    /// Opens a manifest of the site. Its digest is not verified: the digest of the result of a difference is.
    fn open_manifest(&self, release: &[u8; 32]) -> Result<BufReader<File>, ReceiveError> {
        self.must_be_known(release)?;
        let file = self.store.reader().open_blob(release);
        let file = file.map_err(|error| {
            ReceiveError::Refused(format!("the manifest {}: {error}", hex(release)))
        })?;
        Ok(BufReader::new(file))
    }

    /// Reads a manifest of the site.
    fn manifest(&self, release: &[u8; 32]) -> Result<Vec<u8>, ReceiveError> {
        self.must_be_known(release)?;
        read_manifest(self.store.reader(), release).map_err(|error| {
            ReceiveError::Refused(format!("the manifest {}: {error}", hex(release)))
        })
    }

    /// Takes the pieces of a content.
    fn content(&mut self, payload: &[u8]) -> Result<(), ReceiveError> {
        let place = <&[u8; ContentPlace::BYTES]>::try_from(payload);
        let place = place.map_err(|_| ReceiveError::Protocol("a content has a place"))?;
        let place = ContentPlace::parse(place);
        let mut incoming = self.begin_content(place, true)?;
        self.read_pieces(&mut incoming)?;
        self.complete(incoming)
    }

    /// Takes the pieces of a gzip content, and decodes its text.
    fn gzip_and_text(&mut self, payload: &[u8]) -> Result<(), ReceiveError> {
        let numbers = GzipAndText::parse(payload);
        let numbers = numbers.ok_or(ReceiveError::Protocol("a gzip content has two numbers"))?;
        let whole = |number| ContentPlace { number, offset: 0 };
        let mut gzip = self.begin_content(whole(numbers.gzip), true)?;
        // Nothing goes on with a text that is cut: the next connection sends the gzip content or the text anew.
        let mut text = GzDecoder::new(self.begin_content(whole(numbers.text), false)?);
        self.read_pieces(&mut Both(&mut gzip, &mut text))?;
        let text = text.finish().map_err(not_written)?;
        self.complete(gzip)?;
        self.complete(text)
    }

    /// Begins a missing content, or goes on with it. If `is_kept`, the draft of a broken connection stays for the next one.
    fn begin_content(
        &self,
        place: ContentPlace,
        is_kept: bool,
    ) -> Result<IncomingContent<'s>, ReceiveError> {
        let upload = self.upload.as_ref();
        let upload = upload.ok_or(ReceiveError::Protocol("a content comes after its manifest"))?;
        let content = upload.content(place.number);
        let content = *content.ok_or(ReceiveError::Protocol("the content is not missing"))?;
        let mut draft = if is_kept {
            self.store.resume(&self.options.draft_owner(), &content)?
        } else {
            self.store.draft()?
        };
        if place.offset == 0 && draft.size() > 0 {
            // The draft belonged to another session when this one asked for the content.
            draft = self.store.draft()?;
        }
        if draft.size() != place.offset {
            return Err(ReceiveError::Refused(
                "another publisher sends the same content at the moment; publish again".to_owned(),
            ));
        }
        let size = content.size.saturating_sub(place.offset);
        Ok(IncomingContent {
            number: place.number,
            content,
            draft,
            account: self.account,
            reserved: disk_bytes(size),
        })
    }

    /// Reads the pieces of a content.
    fn read_pieces(&mut self, out: &mut dyn Write) -> Result<(), ReceiveError> {
        loop {
            match next_frame(self.store, &mut self.input)? {
                Some((FrameKind::Data, b"")) => return Ok(()),
                Some((FrameKind::Data, piece)) => out.write_all(piece).map_err(not_written)?,
                Some(_) => return Err(ReceiveError::Protocol("a content has pieces alone")),
                None => {
                    return Err(ReceiveError::Stream(
                        std::io::ErrorKind::UnexpectedEof.into(),
                    ));
                }
            }
        }
    }

    /// Compares a content with its digest. The content becomes a part of the store at the next sync.
    fn complete(&mut self, incoming: IncomingContent<'s>) -> Result<(), ReceiveError> {
        let (content, reserved) = (incoming.content, incoming.reserved);
        incoming.draft.finish_as(&content)?;
        if let Some(upload) = &mut self.upload {
            upload.complete(incoming.number);
            upload.unreceived = upload.unreceived.saturating_sub(reserved);
            self.account.settle(upload.unreceived)?;
        }
        self.unrecorded.push(content.digest);
        self.unsynced += content.size;
        if self.unsynced >= RECEIVE_UNSYNCED_BYTES_MAX
            || self.unrecorded.len() >= RECEIVE_UNSYNCED_CONTENTS_MAX
        {
            self.unsynced = 0;
            self.record_contents()?;
            self.store.sync()?;
            // A publisher on the same machine reserves nothing, and perhaps filled the store meanwhile.
            if let Some(upload) = &self.upload {
                self.account.reserve_upload(upload.unreceived)?;
            }
        }
        Ok(())
    }

    /// Records the completed contents that no release of the site has yet.
    fn record_contents(&mut self) -> Result<(), StoreWriteError> {
        let contents = std::mem::take(&mut self.unrecorded);
        record_received(self.store, &self.options.site, &contents)
    }

    /// Sets the pointer of the site, and waits until the server serves the release.
    fn publish(&mut self, text: &[u8]) -> Result<(), ReceiveError> {
        self.must_have(Rights::Publish, "choose the served release")?;
        let parsed = ReleasePointer::parse(text);
        let (wanted, signature) =
            parsed.ok_or(ReceiveError::Protocol("the pointer is malformed"))?;
        if wanted.site != self.options.site {
            let site = &self.options.site;
            return Err(ReceiveError::Refused(format!(
                "the pointer is for the site `{}`, and this account publishes `{site}`",
                wanted.site
            )));
        }
        let own = self.options.publisher.as_ref();
        let publisher = own.unwrap_or(&wanted.publisher).clone();
        if publisher.starts_with(PUSHER) && own.is_none() {
            return Err(ReceiveError::Refused(format!(
                "the names of publishers that begin with `{PUSHER}` belong to pushes into a repository"
            )));
        }
        if signature.is_some() && publisher != wanted.publisher {
            return Err(ReceiveError::Refused(format!(
                "the signed pointer names the publisher `{}`, and this account belongs to `{publisher}`",
                wanted.publisher
            )));
        }
        if signature.is_some() && wanted.time > unix_seconds_now().saturating_add(DAY_SECONDS) {
            return Err(ReceiveError::Refused(
                "the signed pointer has a time more than a day ahead; set the clock of the publisher's machine"
                    .to_owned(),
            ));
        }
        self.must_be_complete(&wanted.release)?;
        let site = SiteWriter::lock(self.store, &self.options.site)?;
        self.add_uploaded(&wanted.release)?;
        let records = self.records()?;
        let next = records
            .publications
            .keys()
            .next_back()
            .map_or(1, |last| last.saturating_add(1));
        if records.served == self.seen && wanted.sequence != next {
            return Err(ReceiveError::Refused(format!(
                "the pointer has the sequence {}, and the next one is {next}",
                wanted.sequence
            )));
        }
        let flip = Flip {
            release: wanted.release,
            seen: self.seen,
            // A release from the future would count as recent for ever.
            time: wanted.time.min(unix_seconds_now()),
            publisher,
        };
        let pointer = site.flip(flip, |pointer| match signature {
            Some(_) => String::from_utf8_lossy(text).into_owned(),
            None => pointer.text(),
        })?;
        drop(site);
        self.unrecorded.clear();
        self.seen = Some(pointer.sequence);
        let file = self.acknowledgment();
        self.store.leave_lock();
        let report = wait_until_served(&file, &pointer);
        self.store.take_lock()?;
        let is_served = report.is_served(pointer.sequence);
        let state = if is_served { "served" } else { "waiting" };
        let (addresses, report) = (SiteAddresses::read(&file).text(), report.text());
        let answer = format!(
            "sequence {}\n{state}\n{addresses}{report}",
            pointer.sequence
        );
        Ok(self.output.write(FrameKind::Done, answer.as_bytes())?)
    }

    /// Runs a command in words.
    fn command(&mut self, text: &str) -> Result<(), ReceiveError> {
        let words: Vec<&str> = text.split(' ').collect();
        let release = |word: &str| {
            let digest = from_hex::<32>(word.as_bytes());
            digest.ok_or(ReceiveError::Protocol(
                "a release has 64 hexadecimal digits",
            ))
        };
        let mut answer = String::new();
        match words[..] {
            ["manifest", digest] => {
                let release = release(digest)?;
                self.must_be_known(&release)?;
                // A release that was swept has an empty text, so that a list goes on.
                let manifest = read_manifest(self.store.reader(), &release).unwrap_or_default();
                return Ok(self.output.write_text(FrameKind::Manifest, &manifest)?);
            }
            ["label", label, digest] => {
                let (release, editor) = (release(digest)?, self.label_editor()?);
                self.must_be_complete(&release)?;
                let site = self.lock()?;
                self.add_uploaded(&release)?;
                site.set_label(label, &release, editor)?;
                self.unrecorded.clear();
            }
            ["unlabel", label] => {
                let editor = self.label_editor()?;
                self.lock()?.remove_label(label, editor)?;
            }
            ["pin", digest] => {
                self.must_have(Rights::Publish, "pin releases")?;
                let release = release(digest)?;
                self.must_be_known(&release)?;
                self.lock()?.mark(ReleaseMark::Pinned, &release)?;
            }
            ["unpin", digest] => {
                self.must_have(Rights::Publish, "unpin releases")?;
                self.lock()?.unpin(&release(digest)?)?;
            }
            ["withdraw", digest] => {
                self.must_have(Rights::All, "withdraw releases")?;
                let release = release(digest)?;
                self.must_be_known(&release)?;
                self.lock()?.mark(ReleaseMark::Withdrawn, &release)?;
            }
            ["verify", digest] => answer = self.verify(&release(digest)?)?,
            _ => return Err(ReceiveError::Refused("the command is unknown".to_owned())),
        }
        Ok(self.output.write(FrameKind::Done, answer.as_bytes())?)
    }

    /// Verifies all contents of a release. Returns a line for each wrong content, and for the number of contents.
    fn verify(&self, release: &[u8; 32]) -> Result<String, ReceiveError> {
        self.must_be_known(release)?;
        let mut answer = String::new();
        let contents = release_contents(self.store.reader(), release)?;
        let codings = gzip_contents(&self.manifest(release)?);
        // The digests of a large release take minutes, in which the sites of the machine come first.
        sys::low_priority_thread();
        self.store.leave_lock();
        for content in &contents {
            if let Err(error) = verify_content(self.store.reader(), content) {
                answer.push_str(&format!("wrong {} {error}\n", hex(&content.digest)));
            }
        }
        for (text, gzip, earlier) in codings {
            let what = if earlier >= GZIP_CONTENTS_VERIFIED_MAX {
                "the text has too many gzip contents to decode each"
            } else if !is_gzip_of(self.store.reader(), &gzip, &text) {
                "the gzip content decodes to another text"
            } else {
                continue;
            };
            answer.push_str(&format!("wrong {} {what}\n", hex(&gzip.digest)));
        }
        self.store.take_lock()?;
        // A sweep perhaps removed the release meanwhile.
        self.must_be_known(release)?;
        answer.push_str(&format!("contents {}\n", contents.len()));
        Ok(answer)
    }

    /// Adds the manifest of a complete upload, under the lock of the site. A publisher on the same machine reserves nothing,
    /// and perhaps filled the store since the upload began.
    fn add_uploaded(&self, release: &[u8; 32]) -> Result<(), ReceiveError> {
        if let Some(upload) = self.upload.as_ref().filter(|it| it.release == *release) {
            self.account
                .reserve(disk_bytes(upload.manifest.len() as u64))?;
            self.store.add_manifest(&upload.manifest)?;
            self.account.settle(0)?;
        }
        Ok(())
    }

    /// Refuses an incomplete upload. Any other release must be one of the site with all contents.
    fn must_be_complete(&self, release: &[u8; 32]) -> Result<(), ReceiveError> {
        if let Some(upload) = &self.upload
            && upload.release == *release
        {
            return match upload.missing_count() {
                0 => upload.must_be_whole(self.store),
                missing => Err(ReceiveError::Refused(format!(
                    "{missing} contents of the release are missing"
                ))),
            };
        }
        self.must_be_known(release)?;
        for content in release_contents(self.store.reader(), release)? {
            if !self.store.has(&content)? {
                return Err(ReceiveError::Refused(format!(
                    "the content {} of the release is missing",
                    hex(&content.digest)
                )));
            }
        }
        Ok(())
    }

    /// Refuses a release that the site never had, so that no publisher reads the releases of other sites.
    fn must_be_known(&self, release: &[u8; 32]) -> Result<(), ReceiveError> {
        if self.records()?.releases().contains(release) {
            Ok(())
        } else {
            Err(ReceiveError::Refused(format!(
                "the site has no release {}",
                hex(release)
            )))
        }
    }

    /// Returns the publisher as the editor of labels. With the rights `preview`, the name of the publisher decides, so an
    /// account without a name changes no label.
    fn label_editor(&self) -> Result<LabelEditor<'s>, ReceiveError> {
        let editor = LabelEditor {
            name: self.options.publisher.as_deref(),
            may_change_all: self.options.rights >= Rights::Publish,
        };
        if editor.name.is_none() && !editor.may_change_all {
            return Err(ReceiveError::Refused(
                "this account has the rights `preview` and no name; add --publisher NAME to its line in authorized_keys"
                    .to_owned(),
            ));
        }
        Ok(editor)
    }

    fn must_have(&self, rights: Rights, action: &str) -> Result<(), ReceiveError> {
        if self.options.rights >= rights {
            Ok(())
        } else {
            Err(ReceiveError::Refused(format!(
                "this account has the rights `{}`, and only the rights `{}` {action}",
                self.options.rights.word(),
                rights.word()
            )))
        }
    }

    /// Returns the path of the server's acknowledgment for the site.
    fn acknowledgment(&self) -> PathBuf {
        self.options.served.join(&self.options.site)
    }

    fn records(&self) -> Result<SiteRecords, StoreWriteError> {
        SiteRecords::read(self.store.reader(), &self.options.site)
    }

    fn lock(&self) -> Result<SiteWriter<'s>, StoreWriteError> {
        SiteWriter::lock(self.store, &self.options.site)
    }
}

/// Returns the pairs of a text and a gzip content in a manifest, each once and in their order, with the number of earlier gzip
/// contents of the text.
fn gzip_contents(manifest: &[u8]) -> Vec<(BlobRef, BlobRef, usize)> {
    let mut text = None;
    let mut seen = HashMap::<BlobRef, HashSet<BlobRef>>::new();
    let mut found = Vec::new();
    for line in ManifestReader::new(manifest)
        .into_iter()
        .flatten()
        .flatten()
    {
        match line {
            ManifestLine::File { content, .. } => text = Some(content),
            ManifestLine::Coded {
                coding: ContentCoding::Gzip,
                content,
            } => {
                let Some(text) = text else { continue };
                let of_text = seen.entry(text).or_default();
                let earlier = of_text.len();
                if of_text.insert(content) {
                    found.push((text, content, earlier));
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns true if a gzip content decodes to a text and has no bytes behind its end. Further bytes than those of the text
/// are not decoded.
fn is_gzip_of(store: &StoreFolder, gzip: &BlobRef, text: &BlobRef) -> bool {
    let Ok(file) = store.open_blob(&gzip.digest) else {
        return false;
    };
    let mut coded = BufReader::new(file);
    let mut decoder = bufread::GzDecoder::new(&mut coded).take(text.size.saturating_add(1));
    let mut buffer = vec![0; STORE_BUFFER_BYTES];
    let (mut digest, mut size) = (Digest::new(), 0);
    loop {
        match decoder.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                digest.update(&buffer[..count]);
                size += count as u64;
            }
            Err(_) => return false,
        }
    }
    let is_end = coded.fill_buf().is_ok_and(<[u8]>::is_empty);
    is_end && size == text.size && digest.finish() == text.digest
}

/// Waits for the next frame of the publisher; None at the end of the stream. A sweep may run meanwhile.
fn next_frame<'f, R: Read>(
    store: &StoreWriter,
    input: &'f mut FrameReader<R>,
) -> Result<Option<(FrameKind, &'f [u8])>, ReceiveError> {
    store.leave_lock();
    let frame = input.read();
    store.take_lock()?;
    Ok(frame?)
}
