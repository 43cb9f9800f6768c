// SPDX-License-Identifier: Apache-2.0
#pragma once

#define RONDO_API [[gnu::visibility("default")]]
