// SPDX-License-Identifier: Apache-2.0
// The only file that includes Catch2, so that its version matters here only.
#pragma once

#include <catch2/catch.hpp>
