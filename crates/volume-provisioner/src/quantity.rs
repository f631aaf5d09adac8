//! Quantities of Kubernetes, such as `1Mi` or `0.5G`, in bytes.

/// Reads a quantity, rounded up to whole bytes. `None`: it is none, is negative, or is larger than `u64`.
///
/// Source: `k8s.io/apimachinery/pkg/api/resource`.
pub(crate) fn bytes(quantity: &str) -> Option<u64> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+').unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let (mantissa, exponent) = decimal(number.strip_prefix('+').unwrap_or(number))?;
    let (power_of_two, power_of_ten) = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        scientific => (0, scientific.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let whole = mantissa.checked_mul(1 << power_of_two)?;
    let power = i32::checked_add(exponent, power_of_ten)?;
    let factor = 10u128.checked_pow(power.unsigned_abs());
    let bytes = if power < 0 { factor.map_or(1, |by| whole.div_ceil(by)) } else { whole.checked_mul(factor?)? };
    u64::try_from(bytes).ok()
}

/// `1.50` is 150, with the exponent -2.
fn decimal(number: &str) -> Option<(u128, i32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, -i32::try_from(fraction.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let read = [
            ("0", 0),
            ("1Mi", 1 << 20),
            ("+1Gi", 1 << 30),
            ("1.5Ki", 1536),
            (".5Ki", 512),
            ("1.Ki", 1024),
            ("100M", 100_000_000),
            ("1e3", 1000),
            ("1E3", 1000),
            ("2E", 2_000_000_000_000_000_000),
            ("12e-1", 2),
            ("1500m", 2),
            ("1m", 1),
            ("15Ei", 15 << 60),
        ];
        for (quantity, expected) in read {
            assert_eq!(bytes(quantity), Some(expected), "{quantity}");
        }
        for bad in ["", "-1", "Mi", ".", "1mi", "1KI", "1e", "16Ei", "1e100", "1.2.3", "1 Gi", "٣"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
