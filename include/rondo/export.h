// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error \
    "Rondo's C++ headers need C++20: compile with -std=c++20. For C99 and older C++ include <rondo/c.h>."
#endif

#define RONDO_API [[gnu::visibility("default")]]
