// SPDX-License-Identifier: Apache-2.0
#include "base/copy.h"

namespace rondo::base {

bool has_vector_copy() noexcept {
  return false;
}
void copy_in_vectors(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

}  // namespace rondo::base
