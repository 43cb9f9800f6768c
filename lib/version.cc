// SPDX-License-Identifier: Apache-2.0
#include <rondo/version.h>

namespace rondo {

std::string_view version() noexcept {
  return RONDO_VERSION;
}

}  // namespace rondo
