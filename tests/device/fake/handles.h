// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "control.h"

namespace fake {

// Counts the objects that are alive. When the process ends with some, and leaks=fail is set, it
// prints them and its exit status is 97.
void count_handle(RondoFakeKind kind, long change);
long handles_alive(RondoFakeKind kind);

}  // namespace fake
