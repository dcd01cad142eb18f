//! The evidence of a verdict as a file that anybody can check offline (rollouts.md, decision 22).
//!
//! RFC 8785 JSON of `digest`, `format` and `report`. `digest` is the SHA-256, in hex, over the
//! canonical JSON of the other two, so one changed figure is seen; [`verify`] also asks whether the
//! figures add up and judges them again, so an invented bundle with a right digest does not pass.

mod check;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::report::RolloutReport;
use super::verdict::{Verdict, judge};

/// The format that is written and read.
pub const FORMAT: u32 = 1;

/// Bytes of a bundle that are read: [`super::report::HALTED_MAX`] members with every text at its
/// longest, escaped, need less than half of it.
pub const BUNDLE_BYTES_MAX: usize = 64 << 20;

/// The largest whole number that JSON readers agree on (RFC 8785 takes numbers as IEEE doubles).
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// A verdict with all that it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// SHA-256 over the canonical JSON of the rest, 64 hex digits.
    digest: String,
    format: u32,
    report: RolloutReport,
}

/// What a bundle turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Digest and sums are right, and the verdict comes out the same. `gateway rollout verify`
    /// exits 0 then, 1 otherwise, and 2 on a [`BundleError`].
    pub same: bool,
    /// What is not as it should be, one sentence each; empty when `same`.
    pub differences: Vec<String>,
    /// The verdict as recomputed.
    pub verdict: Verdict,
    /// What the bundle says.
    pub report: RolloutReport,
}

/// Why there is no bundle, or none to be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is too big to be one.
    #[error("is longer than the {BUNDLE_BYTES_MAX} bytes that a bundle may have")]
    TooLong,
    /// It is not JSON, or not a bundle: a field is missing, unknown, twice there or of another
    /// kind.
    #[error("is no evidence bundle: {0}")]
    Shape(String),
    /// It is of a format that this version does not know.
    #[error("has format {0}, and this version reads format {FORMAT}")]
    Format(u32),
    /// It holds a number that not all readers of JSON can hold.
    #[error("holds {0}, and JSON is exact up to {NUMBER_MAX} only")]
    Number(u64),
}

impl Bundle {
    /// The bundle of a report: all of it but its proposal, which comes after the verdict.
    ///
    /// # Errors
    /// [`BundleError::Number`] when a number is past [`NUMBER_MAX`].
    pub fn of(report: &RolloutReport) -> Result<Self, BundleError> {
        let report = RolloutReport { proposal: None, ..report.clone() };
        let mut bundle = Self { digest: String::new(), format: FORMAT, report };
        bundle.digest = bundle.digest_of_rest()?;
        Ok(bundle)
    }

    /// What it says.
    pub fn report(&self) -> &RolloutReport {
        &self.report
    }

    /// SHA-256 over all but itself, 64 hex digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The bytes of its file: RFC 8785 JSON and a final newline.
    ///
    /// # Errors
    /// [`BundleError::Number`] when a number is past [`NUMBER_MAX`].
    pub fn to_canonical_json(&self) -> Result<Vec<u8>, BundleError> {
        let mut bytes = canonical(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn digest_of_rest(&self) -> Result<String, BundleError> {
        #[derive(Serialize)]
        struct Rest<'a> {
            format: u32,
            report: &'a RolloutReport,
        }
        let bytes = canonical(&Rest { format: self.format, report: &self.report })?;
        Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Checks a bundle by itself: its digest, whether its figures add up, and whether they come to the
/// verdict that it states. White space and the order of members do not matter.
///
/// # Errors
/// When it cannot be read as a bundle at all.
pub fn verify(bytes: &[u8]) -> Result<Verified, BundleError> {
    if bytes.len() > BUNDLE_BYTES_MAX {
        return Err(BundleError::TooLong);
    }
    let shape = |error: serde_json::Error| BundleError::Shape(error.to_string());
    let text = serde_json::from_slice::<Value>(bytes).map_err(shape)?;
    // A later format may have other fields, so it is asked for before they are.
    if let Some(format) = text.get("format").and_then(Value::as_u64)
        && format != u64::from(FORMAT)
    {
        return Err(BundleError::Format(u32::try_from(format).unwrap_or(u32::MAX)));
    }
    let bundle: Bundle = serde_json::from_slice(bytes).map_err(shape)?;
    // Read leniently, a list may stand for an object and a missing field for `null`.
    if serde_json::to_value(&bundle).map_err(shape)? != text {
        return Err(BundleError::Shape("a field is missing or is written another way".to_owned()));
    }
    drop(text);

    let mut differences = Vec::new();
    let digest = bundle.digest_of_rest()?;
    if digest != bundle.digest {
        differences.push(format!("digest is {}, its content's is {digest}", bundle.digest));
    }
    let report = bundle.report;
    check::sums(&report, &mut differences);
    let verdict = judge(&report.terms, &report.tally, &report.times);
    check::verdict(&report.verdict, &verdict, &mut differences);
    Ok(Verified { same: differences.is_empty(), differences, verdict, report })
}

fn canonical(value: &impl Serialize) -> Result<Vec<u8>, BundleError> {
    let shape = |error: serde_json::Error| BundleError::Shape(error.to_string());
    let value = serde_json::to_value(value).map_err(shape)?;
    exact(&value)?;
    serde_json_canonicalizer::to_vec(&value).map_err(shape)
}

/// Refuses numbers that some readers would round.
fn exact(value: &Value) -> Result<(), BundleError> {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => match number.as_u64() {
            Some(number) if number > NUMBER_MAX => Err(BundleError::Number(number)),
            _ => Ok(()),
        },
        Value::Array(values) => values.iter().try_for_each(exact),
        Value::Object(members) => members.values().try_for_each(exact),
    }
}
