/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lengths that only a packet knows, as helpers take them. Each verifier since Linux 6.1 must see
 * that a size is at least 1 and at most what is left of its memory, and the old ones lose sight of
 * it: 6.1 does not learn from `len != 0` that a range begins at 1; 6.12 forgets the bound of a
 * value of 16 bits that is copied after it was compared. So what is compared is the length less 1,
 * as a value of 32 bits that the compiler knows nothing of, and the size is made of just
 * that value.
 */
#pragma once

#include <target.h>

/* `*size` is `len`, from 1 to `most`. False: it is no such length. */
INLINE bool is_size(__u32 len, __u32 most, __u32 *size)
{
	__u32 less = len - 1;
	opaque(less);
	if (less >= most)
		return false;
	opaque(less);
	*size = less + 1;
	return true;
}

/*
 * An index that was compared, where it is used: `count`, a power of two, bounds it once more, which
 * the compiler would leave out.
 */
INLINE __u32 index_below(__u32 count, __u32 index)
{
	opaque(index);
	return index & (count - 1);
}
