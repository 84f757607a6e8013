//! Seals texts that only this server may read: credentials of declared servers in stored runs, and data that clients keep for the server.

use std::{
    fmt, fs, io,
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
};
use windlass_kernel::Tenant;
use windlass_ports::{CanaryKey, SealKeys, Sealing};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// The version byte at the start of a sealed text. The id of the key follows, then the nonce.
const FORM: u8 = 2;
/// The version byte of earlier versions, which has no id of a key.
const FORM_WITHOUT_ID: u8 = 1;
/// Bytes of a key's id.
const ID_BYTES: usize = 4;
/// Keys per server: the one that seals, and earlier ones.
const KEYS_MAX: usize = 16;
/// The purpose of texts that clients keep.
const KEPT_BY_CLIENTS: &str = "windlass/kept-by-clients";
/// The tenant and purpose of a store's canary. No real tenant has an empty name.
const CANARY: (&str, &str) = ("", "windlass/canary");

/// Seals texts for a tenant and a purpose. A text that was sealed for one of each cannot be opened for another.
#[derive(Clone)]
pub struct Seal {
    /// The current key, which seals.
    key: SealKey,
    /// Earlier keys, which only open.
    earlier: Vec<SealKey>,
    random: SystemRandom,
}

/// One key. Its id reveals nothing about it.
#[derive(Clone)]
struct SealKey {
    id: [u8; ID_BYTES],
    root: Prk,
}

/// The length of a key's id.
struct IdLength;

impl KeyType for IdLength {
    fn len(&self) -> usize {
        ID_BYTES
    }
}

impl SealKey {
    fn new(key: &[u8; KEY_BYTES]) -> Result<Self, SealError> {
        let root = Salt::new(HKDF_SHA256, b"windlass/seal").extract(key);
        let mut id = [0; ID_BYTES];
        let filled = root.expand(&[b"windlass/key-id"], IdLength).and_then(|expanded| expanded.fill(&mut id));
        filled.map_err(|_| SealError::Refused)?;
        Ok(SealKey { id, root })
    }

    fn from_hex(text: &str) -> Result<Self, SealError> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * KEY_BYTES).ok_or(SealError::NotAKey)?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        SealKey::new(&bytes.try_into().map_err(|_| SealError::NotAKey)?)
    }

    fn of(&self, tenant: &Tenant) -> Result<LessSafeKey, SealError> {
        let info = [b"windlass/tenant/".as_slice(), tenant.as_str().as_bytes()];
        let key = self.root.expand(&info, &CHACHA20_POLY1305).map_err(|_| SealError::Refused)?;
        Ok(LessSafeKey::new(UnboundKey::from(key)))
    }

    fn open(&self, tenant: &Tenant, purpose: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or(SealError::Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Refused)?;
        let mut text = text.to_vec();
        let length = self.of(tenant)?.open_in_place(nonce, Aad::from(purpose), &mut text).map_err(|_| SealError::Refused)?.len();
        text.truncate(length);
        Ok(text)
    }
}

impl Seal {
    /// Parses keys of 64 hexadecimal digits each, separated by spaces, line ends or commas. The first one seals; the others are earlier
    /// ones, which only open. Processes on one store need the same keys.
    pub fn from_hex(text: &str) -> Result<Self, SealError> {
        let parts = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let mut keys = parts.map(SealKey::from_hex).collect::<Result<Vec<_>, _>>()?.into_iter();
        let key = keys.next().filter(|_| keys.len() < KEYS_MAX).ok_or(SealError::NotAKey)?;
        Ok(Seal { key, earlier: keys.collect(), random: SystemRandom::new() })
    }

    /// The id of the key that seals.
    pub fn key_id(&self) -> String {
        hex(&self.key.id)
    }

    fn keys(&self) -> impl Iterator<Item = &SealKey> {
        std::iter::once(&self.key).chain(&self.earlier)
    }

    /// Reads the keys from a file. If the file does not exist, it is created with a new key, readable by this user only.
    pub fn from_file(path: &Path) -> Result<Self, SealError> {
        let fail = |source| SealError::File { path: path.to_owned(), source };
        if !path.try_exists().map_err(fail)? {
            make_file(path).map_err(fail)?;
        }
        let file = fs::File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.permissions().mode() & 0o077 != 0 {
            return Err(SealError::Readable { path: path.to_owned() });
        }
        let mut text = String::new();
        // A longer file is not a file of keys.
        file.take((KEYS_MAX * (2 * KEY_BYTES + 2)) as u64 + 1).read_to_string(&mut text).map_err(fail)?;
        Seal::from_hex(&text)
    }

    /// Seals the text for the tenant and a purpose. Opening it needs both.
    pub(crate) fn seal(&self, tenant: &Tenant, purpose: &str, text: &[u8]) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| SealError::Refused)?;
        self.seal_with(nonce, tenant, purpose, text)
    }

    fn seal_with(&self, nonce: [u8; NONCE_LEN], tenant: &Tenant, purpose: &str, text: &[u8]) -> Result<String, SealError> {
        let mut bytes = text.to_vec();
        let key = self.key.of(tenant)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut bytes)
            .map_err(|_| SealError::Refused)?;
        Ok(URL_SAFE_NO_PAD.encode([&[FORM][..], &self.key.id, &nonce, &bytes].concat()))
    }

    /// Opens a text that was sealed for the same tenant and purpose with one of the keys.
    pub(crate) fn open(&self, tenant: &Tenant, purpose: &str, sealed: &str) -> Result<Vec<u8>, SealError> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| SealError::Refused)?;
        match bytes.split_first() {
            Some((&FORM, rest)) => {
                let (id, rest) = rest.split_at_checked(ID_BYTES).ok_or(SealError::Refused)?;
                let key = self.keys().find(|key| key.id == id).ok_or(SealError::Refused)?;
                key.open(tenant, purpose, rest)
            }
            Some((&FORM_WITHOUT_ID, rest)) => self.keys().find_map(|key| key.open(tenant, purpose, rest).ok()).ok_or(SealError::Refused),
            Some(_) | None => Err(SealError::Refused),
        }
    }

    /// A nonce that is derived from the tenant, the id and the text, so that no two different texts share one.
    fn own_nonce(&self, tenant: &Tenant, id: &str, text: &str) -> Result<[u8; NONCE_LEN], SealError> {
        let info = [b"windlass/nonce/".as_slice(), tenant.as_str().as_bytes()];
        let key = hmac::Key::from(self.key.root.expand(&info, HMAC_SHA256).map_err(|_| SealError::Refused)?);
        let mut tag = hmac::Context::with_key(&key);
        // The length precedes the id, so that the boundary between id and text is unambiguous.
        tag.update(&(id.len() as u64).to_be_bytes());
        tag.update(id.as_bytes());
        tag.update(text.as_bytes());
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&tag.sign().as_ref()[..NONCE_LEN]);
        Ok(nonce)
    }
}

impl SealKeys for Seal {
    fn canary(&self) -> String {
        let sealed = Seal::seal(self, &Tenant::from(CANARY.0), CANARY.1, b"windlass");
        sealed.expect("keys of a fixed length can be made, and a short text can be sealed")
    }

    fn check_canary(&self, canary: &str) -> Result<CanaryKey, String> {
        let is_opened = Seal::open(self, &Tenant::from(CANARY.0), CANARY.1, canary).is_ok();
        let id = URL_SAFE_NO_PAD.decode(canary).ok().and_then(|bytes| bytes.get(1..=ID_BYTES).map(hex)).unwrap_or_default();
        if is_opened {
            return Ok(if id == self.key_id() { CanaryKey::Current } else { CanaryKey::Earlier });
        }
        let own: Vec<String> = self.keys().map(|key| hex(&key.id)).collect();
        Err(format!(
            "it was last used with the seal key {id}, and this server has {}: none of them opens what is sealed in it. Give the server that key \
             too, in `seal.key` of its data folder or in WINDLASS_SEAL_KEY, where the first key seals and the others only open",
            own.join(", ")
        ))
    }
}

impl Sealing for Seal {
    fn seal(&self, tenant: &Tenant, id: &str, text: &str) -> String {
        let nonce = self.own_nonce(tenant, id, text);
        let sealed = nonce.and_then(|nonce| self.seal_with(nonce, tenant, KEPT_BY_CLIENTS, text.as_bytes()));
        sealed.expect("keys of a fixed length can be made, and any text that fits in memory can be sealed")
    }

    fn open(&self, tenant: &Tenant, sealed: &str) -> Option<String> {
        let text = Seal::open(self, tenant, KEPT_BY_CLIENTS, sealed).ok()?;
        String::from_utf8(text).ok()
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

/// Creates the file with a new key. If two processes do this, the second one uses the first one's key: the file appears complete or not at
/// all.
fn make_file(path: &Path) -> io::Result<()> {
    let random = SystemRandom::new();
    let mut key = [0; KEY_BYTES];
    let mut mark = [0; 8];
    let filled = random.fill(&mut key).and_then(|()| random.fill(&mut mark));
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let draft = path.with_extension(format!("{}.draft", hex(&mark)));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let made = file.write_all(format!("{}\n", hex(&key)).as_bytes()).and_then(|()| file.sync_all());
    let kept = made.and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        kept => kept,
    });
    fs::remove_file(&draft)?;
    kept?;
    // Without this, a power failure could lose the file's name, and with the key everything sealed since.
    fs::File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a key or a sealed text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The text is not a valid key.
    #[error("a key of 64 hexadecimal digits is wanted, or up to {KEYS_MAX} of them with line ends, spaces or commas between them")]
    NotAKey,
    /// The file cannot be read or created.
    #[error("the key file {} cannot be used: {source}", path.display())]
    File {
        /// The key file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("the key file {} can be read by others: its mode must be 0600", path.display())]
    Readable {
        /// The key file.
        path: PathBuf,
    },
    /// The text was sealed with another key, for another tenant or purpose, or was changed.
    #[error("what was sealed cannot be opened here")]
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealing(keys: &[u8]) -> Seal {
        let keys: Vec<String> = keys.iter().map(|byte| hex(&[*byte; KEY_BYTES])).collect();
        Seal::from_hex(&keys.join("\n")).expect("keys")
    }

    #[test]
    fn tm_20_what_an_earlier_key_sealed_is_opened_and_no_longer_sealed_with_it() {
        let (old, tenant) = (sealing(&[7]), Tenant::from("acme"));
        let (credentials, kept) = (old.seal(&tenant, "p", b"secret").expect("it seals"), Sealing::seal(&old, &tenant, "id", "words"));
        let rotated = sealing(&[8, 7]);
        assert_eq!(rotated.open(&tenant, "p", &credentials).expect("an earlier key opens"), b"secret");
        assert_eq!(Sealing::open(&rotated, &tenant, &kept).as_deref(), Some("words"));
        let fresh = rotated.seal(&tenant, "p", b"secret").expect("it seals");
        assert!(old.open(&tenant, "p", &fresh).is_err() && sealing(&[8]).open(&tenant, "p", &fresh).is_ok());
        assert!(sealing(&[8]).open(&tenant, "p", &credentials).is_err(), "without the earlier key it is lost");
        assert_ne!(old.key_id(), rotated.key_id());
        assert_eq!(rotated.key_id(), sealing(&[8]).key_id());
        // The format of versions whose keys had no ids.
        let bytes = URL_SAFE_NO_PAD.decode(&credentials).expect("base64");
        let earlier = URL_SAFE_NO_PAD.encode([&[FORM_WITHOUT_ID][..], &bytes[1 + ID_BYTES..]].concat());
        for seal in [&old, &rotated] {
            assert_eq!(seal.open(&tenant, "p", &earlier).expect("it opens"), b"secret");
        }
        assert!(sealing(&[8, 9]).open(&tenant, "p", &earlier).is_err());
    }

    #[test]
    fn tm_20_a_canary_is_known_by_the_keys_that_open_it() {
        let canary = sealing(&[7]).canary();
        assert_eq!(sealing(&[7, 8]).check_canary(&canary), Ok(CanaryKey::Current));
        assert_eq!(sealing(&[8, 7]).check_canary(&canary), Ok(CanaryKey::Earlier));
        let refused = sealing(&[8, 9]).check_canary(&canary).expect_err("neither opens it");
        for id in [sealing(&[7]).key_id(), sealing(&[8]).key_id(), sealing(&[9]).key_id()] {
            assert!(refused.contains(&id), "{id}: {refused}");
        }
        assert!(sealing(&[7]).check_canary("").is_err());
        assert_eq!(Sealing::open(&sealing(&[7]), &Tenant::from(""), &canary), None, "it is good for nothing else");
    }

    #[test]
    fn it_opens_for_its_tenant_and_purpose_alone() {
        let (seal, tenant) = (sealing(&[7]), Tenant::from("acme"));
        let sealed = seal.seal(&tenant, "https://a/", b"secret").expect("it seals");
        assert_eq!(seal.open(&tenant, "https://a/", &sealed).expect("it opens"), b"secret");
        assert!(!sealed.contains("secret") && sealed.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
        assert!(matches!(seal.open(&Tenant::from("other"), "https://a/", &sealed), Err(SealError::Refused)));
        assert!(matches!(seal.open(&tenant, "https://b/", &sealed), Err(SealError::Refused)));
        assert!(matches!(sealing(&[8]).open(&tenant, "https://a/", &sealed), Err(SealError::Refused)));
        assert_ne!(sealed, seal.seal(&tenant, "https://a/", b"secret").expect("it seals"), "no two are alike");
    }

    #[test]
    fn what_a_client_keeps_is_sealed_the_same_way_every_time() {
        let (seal, tenant) = (sealing(&[7]), Tenant::from("acme"));
        let port: &dyn Sealing = &seal;
        let sealed = port.seal(&tenant, "id", "what was said");
        assert_eq!(port.seal(&tenant, "id", "what was said"), sealed);
        assert_eq!(port.open(&tenant, &sealed).as_deref(), Some("what was said"));
        let nonce = |sealed: &str| URL_SAFE_NO_PAD.decode(sealed).expect("base64")[1 + ID_BYTES..][..NONCE_LEN].to_vec();
        let others = [
            port.seal(&tenant, "id", "what was saiD"),
            port.seal(&tenant, "other", "what was said"),
            port.seal(&tenant, "idw", "hat was said"),
            port.seal(&Tenant::from("other"), "id", "what was said"),
        ];
        for other in &others {
            assert_ne!(nonce(other), nonce(&sealed), "no two texts share a nonce");
        }
        assert_eq!(port.open(&tenant, &others[3]), None, "another tenant's");
        assert_eq!(Sealing::open(&sealing(&[8]), &tenant, &sealed), None, "another key's");
        let credentials = sealing(&[7]).seal(&tenant, "https://a/", b"secret").expect("it seals");
        assert_eq!(port.open(&tenant, &credentials), None, "nor is it for anything else");
        for index in 0..sealed.len() {
            let other = if &sealed[index..=index] == "A" { "B" } else { "A" };
            assert_eq!(port.open(&tenant, &format!("{}{other}{}", &sealed[..index], &sealed[index + 1..])), None, "{index}");
        }
        assert_eq!(["", "A", "résumé"].map(|text| port.open(&tenant, text)), [None, None, None]);
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let (seal, tenant) = (sealing(&[7]), Tenant::from("acme"));
        let sealed = seal.seal(&tenant, "", b"secret").expect("it seals");
        for index in 0..sealed.len() {
            let other = if &sealed[index..=index] == "A" { "B" } else { "A" };
            let changed = format!("{}{other}{}", &sealed[..index], &sealed[index + 1..]);
            assert!(seal.open(&tenant, "", &changed).is_err(), "{changed}");
        }
        for text in ["", "AQ", "not base64!"] {
            assert!(seal.open(&tenant, "", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_file_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("seal.key");
        let tenant = Tenant::from("acme");
        let sealed = Seal::from_file(&path).expect("it is made").seal(&tenant, "", b"x").expect("it seals");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no draft is left");
        assert_eq!(Seal::from_file(&path).expect("it is read").open(&tenant, "", &sealed).expect("it opens"), b"x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it can be opened up");
        assert!(matches!(Seal::from_file(&path), Err(SealError::Readable { .. })));
    }

    #[test]
    fn a_key_that_is_none_is_refused_and_none_is_shown() {
        let many = vec!["07".repeat(KEY_BYTES); KEYS_MAX + 1].join("\n");
        for text in ["", "07", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64), &format!("{} 07", "07".repeat(KEY_BYTES)), &many] {
            assert!(matches!(Seal::from_hex(text), Err(SealError::NotAKey)), "{text}");
        }
        assert_eq!(format!("{:?}", Seal::from_hex(&"07".repeat(32)).expect("a key")), "Seal(…)");
        assert!(matches!(Seal::from_file(Path::new("/nowhere/seal.key")), Err(SealError::File { .. })));
    }
}
