//! A key of one direction of TLS 1.3, all in one piece.
//!
//! The safe interface of the same library keeps what it computes from a key behind a pointer of its
//! own. With thousands of connections that is somewhere else for each, and every request waits a
//! dozen times for a line of memory. Here it lies inside the connection's own record, where it can be
//! fetched ahead.

use aws_lc_sys as aws;
use std::{mem, ptr, slice};
use zeroize::Zeroize;

/// The length of every tag.
pub const TAG_BYTES: usize = 16;
/// The length of every nonce.
pub const NONCE_BYTES: usize = 12;

/// The ciphers of TLS 1.3 that we speak (RFC 8446 §B.4).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Aead {
    /// AES-128 in Galois/Counter Mode.
    Aes128Gcm,
    /// AES-256 in Galois/Counter Mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305,
}

impl Aead {
    /// The length of its keys.
    pub fn key_bytes(self) -> usize {
        match self {
            Aead::Aes128Gcm => 16,
            Aead::Aes256Gcm | Aead::ChaCha20Poly1305 => 32,
        }
    }

    fn method(self) -> *const aws::EVP_AEAD {
        // SAFETY: these return the addresses of constants.
        unsafe {
            match self {
                Aead::Aes128Gcm => aws::EVP_aead_aes_128_gcm(),
                Aead::Aes256Gcm => aws::EVP_aead_aes_256_gcm(),
                Aead::ChaCha20Poly1305 => aws::EVP_aead_chacha20_poly1305(),
            }
        }
    }
}

/// What is computed from a key once.
///
/// The library aligns its state to 16 bytes inside the context, by an offset that it notes: the
/// context itself is aligned so, wherever it is moved, and the offset stays true.
#[repr(C, align(16))]
pub struct AeadKey {
    context: aws::EVP_AEAD_CTX,
}

impl AeadKey {
    /// None if `key` is not as long as the cipher's keys are.
    pub fn new(aead: Aead, key: &[u8]) -> Option<AeadKey> {
        if key.len() != aead.key_bytes() {
            return None;
        }
        // SAFETY: all zeros is what EVP_AEAD_CTX_zero makes; the call reads `key` and fills the rest,
        // or leaves it as it was.
        unsafe {
            aws::CRYPTO_library_init();
            let mut made = AeadKey {
                context: mem::zeroed(),
            };
            let done = aws::EVP_AEAD_CTX_init(
                &mut made.context,
                aead.method(),
                key.as_ptr(),
                key.len(),
                TAG_BYTES,
                ptr::null_mut(),
            );
            (done == 1).then_some(made)
        }
    }

    /// Seals `content` in place; returns the tag that follows it. None if that is too long.
    ///
    /// No two calls may be given the same nonce.
    pub fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        content: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let mut tag = [0; TAG_BYTES];
        let mut tag_bytes = 0;
        // SAFETY: the context is initialised, the lengths are those of what stands beside them, and
        // input and output may be the same place.
        let done = unsafe {
            aws::EVP_AEAD_CTX_seal_scatter(
                &self.context,
                content.as_mut_ptr(),
                tag.as_mut_ptr(),
                &mut tag_bytes,
                tag.len(),
                nonce.as_ptr(),
                nonce.len(),
                content.as_ptr(),
                content.len(),
                ptr::null(),
                0,
                associated.as_ptr(),
                associated.len(),
            )
        };
        (done == 1 && tag_bytes == TAG_BYTES).then_some(tag)
    }

    /// Opens `sealed`, which ends in its tag, in place; returns how long the content at its beginning
    /// is. None if it wasn't sealed with this key, nonce and associated data; then nothing of it is
    /// left.
    pub fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &mut [u8],
    ) -> Option<usize> {
        let mut len = 0;
        // SAFETY: as above; the content is never longer than what was sealed.
        let done = unsafe {
            aws::EVP_AEAD_CTX_open(
                &self.context,
                sealed.as_mut_ptr(),
                &mut len,
                sealed.len(),
                nonce.as_ptr(),
                nonce.len(),
                sealed.as_ptr(),
                sealed.len(),
                associated.as_ptr(),
                associated.len(),
            )
        };
        (done == 1 && len <= sealed.len()).then_some(len)
    }
}

impl Drop for AeadKey {
    fn drop(&mut self) {
        let context: *mut aws::EVP_AEAD_CTX = &mut self.context;
        // SAFETY: it was initialised or is zero; after the cleanup nobody reads it, and all of its
        // bytes were written when it was made.
        unsafe {
            aws::EVP_AEAD_CTX_cleanup(context);
            slice::from_raw_parts_mut(context.cast::<u8>(), size_of::<aws::EVP_AEAD_CTX>())
                .zeroize();
        }
    }
}
