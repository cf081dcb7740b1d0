//! AEAD key for one direction of a TLS 1.3 connection, stored in one piece.
//!
//! The safe interface of aws-lc keeps the key schedule behind a separate pointer. With thousands of
//! connections every request would then wait a dozen times for a cache line. Here the key schedule lies
//! inside the connection's own record and can be prefetched.

use aws_lc_sys as aws;
use std::{mem, ptr, slice};
use zeroize::Zeroize;

/// Bytes of every tag.
pub const TAG_BYTES: usize = 16;
/// Bytes of every nonce.
pub const NONCE_BYTES: usize = 12;

/// Supported ciphers of TLS 1.3 (RFC 8446 §B.4).
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
    /// Returns the length of the cipher's keys in bytes.
    pub fn key_bytes(self) -> usize {
        match self {
            Aead::Aes128Gcm => 16,
            Aead::Aes256Gcm | Aead::ChaCha20Poly1305 => 32,
        }
    }

    fn method(self) -> *const aws::EVP_AEAD {
        // SAFETY: the functions return addresses of constants.
        unsafe {
            match self {
                Aead::Aes128Gcm => aws::EVP_aead_aes_128_gcm(),
                Aead::Aes256Gcm => aws::EVP_aead_aes_256_gcm(),
                Aead::ChaCha20Poly1305 => aws::EVP_aead_chacha20_poly1305(),
            }
        }
    }
}

/// Key schedule of one key.
///
/// The library aligns its state to 16 bytes inside the context and records the offset. The context itself
/// has the same alignment, so the offset stays valid after a move.
#[repr(C, align(16))]
pub struct AeadKey {
    context: aws::EVP_AEAD_CTX,
}

// SAFETY: the context owns its state, points only to constants besides, and has no tie to a thread. The library
// even allows simultaneous use of a context by several threads.
unsafe impl Send for AeadKey {}

impl AeadKey {
    /// Makes the key schedule. Returns None if `key` has another length than the cipher's keys.
    pub fn new(aead: Aead, key: &[u8]) -> Option<AeadKey> {
        if key.len() != aead.key_bytes() {
            return None;
        }
        // SAFETY: all zeros is the state made by EVP_AEAD_CTX_zero. The call reads `key`, and initialises
        // the context or leaves the context unchanged.
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

    /// Seals `content` in place and returns the tag, which follows the content. Returns None if the content
    /// is too long.
    ///
    /// No two calls may use the same nonce.
    pub fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        content: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let mut tag = [0; TAG_BYTES];
        let mut tag_bytes = 0;
        // SAFETY: the context is initialised, each length belongs to the pointer before it, and input and
        // output may be equal.
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

    /// Opens `sealed`, which ends with its tag, in place. Returns the length of the content at the
    /// beginning. Returns None if `sealed` was not made with the same key, nonce and associated data; the
    /// content is then erased.
    pub fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &mut [u8],
    ) -> Option<usize> {
        let mut len = 0;
        // SAFETY: the context is initialised, each length belongs to the pointer before it, and the content
        // is never longer than `sealed`.
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
        // SAFETY: the context was initialised or is zero. No code reads the context after the cleanup, and
        // all bytes were written during construction.
        unsafe {
            aws::EVP_AEAD_CTX_cleanup(context);
            slice::from_raw_parts_mut(context.cast::<u8>(), size_of::<aws::EVP_AEAD_CTX>())
                .zeroize();
        }
    }
}
