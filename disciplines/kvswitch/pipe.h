/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which cold keys are asked for most: a HashPipe. */
#pragma once

#include "discipline.h"
