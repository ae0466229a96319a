//! Who has how many of a switch's items: max-min fair. Whoever wants less than an equal share gets
//! that; what it leaves is shared among the others.

/// The shares of `total` for those who want so many.
pub fn shares(total: usize, wanted: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|who| wanted[*who]);
    let (mut left, mut shares) = (total, vec![0; wanted.len()]);
    for (served, who) in order.iter().enumerate() {
        // Those who want most come last: what does not divide evenly is theirs.
        let share = wanted[*who].min(left / (wanted.len() - served));
        shares[*who] = share;
        left -= share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_some_leave_is_the_others() {
        assert_eq!(shares(128, &[1000, 8, 1000]), [60, 8, 60]);
        assert_eq!(shares(100, &[10, 20]), [10, 20]);
        assert_eq!(shares(1, &[5, 5]), [0, 1]);
        assert_eq!(shares(9, &[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn nobody_has_less_than_an_equal_share_unless_he_wants_less(total in 0usize..1000, wanted in prop::collection::vec(0usize..1000, 1..20)) {
            let shares = shares(total, &wanted);
            prop_assert_eq!(shares.iter().sum::<usize>(), total.min(wanted.iter().sum()));
            for (share, wanted) in shares.iter().zip(&wanted) {
                prop_assert!(share <= wanted && *share >= (*wanted).min(total / shares.len()));
            }
        }
    }
}
