// SPDX-License-Identifier: Apache-2.0
// The one place that knows which Catch2 this is.
#pragma once

#include <catch2/catch.hpp>
