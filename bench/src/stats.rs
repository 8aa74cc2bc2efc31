//! Medians and percentiles.

/// What was measured of one thing, once per repetition.
#[derive(Clone, Debug)]
pub(crate) struct Repeated(pub(crate) Vec<f64>);

impl Repeated {
    pub(crate) fn median(&self) -> f64 {
        median(self.0.iter().copied())
    }

    /// The same in another unit or turned around.
    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().copied().map(change).collect())
    }

    /// The ratio to `other` in each repetition.
    pub(crate) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect())
    }

    /// The least and the greatest ratio to `other` within one repetition. `None` of nothing.
    pub(crate) fn ratios(&self, other: &Self) -> Option<(f64, f64)> {
        let Self(ratios) = self.over(other);
        let ratios = ratios.iter().copied();
        Some((ratios.clone().reduce(f64::min)?, ratios.reduce(f64::max)?))
    }
}

/// The middle value; of an even number of values, the mean of the middle two. `NaN` of nothing.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.is_empty() {
        f64::NAN
    } else if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// The smallest of `sorted` that at least `share` of all values do not exceed (nearest rank). `None` of nothing.
pub(crate) fn percentile(sorted: &[u32], share: f64) -> Option<u32> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_of_values_is_the_middle_one() {
        assert_eq!(median([9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median([7.0]), 7.0);
    }

    #[test]
    fn the_median_of_an_even_number_of_values_lies_between_the_middle_two() {
        assert_eq!(median([4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    #[test]
    fn the_median_of_nothing_is_not_a_number() {
        assert!(median([]).is_nan());
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let (own, other) = (Repeated(vec![2.0, 9.0, 4.0]), Repeated(vec![1.0, 3.0, 4.0]));
        assert_eq!(own.over(&other).0, [2.0, 3.0, 1.0]);
        assert_eq!(own.ratios(&other), Some((1.0, 3.0)));
        assert_eq!(Repeated(Vec::new()).ratios(&other), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let sorted: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 0.50), Some(50));
        assert_eq!(percentile(&sorted, 0.99), Some(99));
        assert_eq!(percentile(&sorted, 1.0), Some(100));
        assert_eq!(percentile(&sorted, 0.0), Some(1));
    }

    #[test]
    fn a_percentile_of_few_values_rounds_up() {
        assert_eq!(percentile(&[10, 20, 30], 0.50), Some(20));
        assert_eq!(percentile(&[10, 20, 30], 0.99), Some(30));
        assert_eq!(percentile(&[10], 0.50), Some(10));
        assert_eq!(percentile(&[], 0.50), None);
    }
}
