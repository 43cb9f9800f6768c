// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace rondo::bn {

// Names of layers, for a message. Allocates nothing for names that it has room for. Thread-bound.
class NotedLayers {
 public:
  void note(std::string_view layer);
  void clear() noexcept { count_ = 0; }
  bool empty() const noexcept { return count_ == 0; }
  std::string list() const;  // "bn1, bn2, bn3 and 3 more"

 private:
  std::size_t count_ = 0;
  std::array<std::string, 3> first_;
};

// What this rank did without the others since it last trained. Thread-bound.
struct LocalCalls {
  NotedLayers evaluations, local_backwards;

  void clear() noexcept;
  // "it evaluated bn1, bn2 and ran a local backward of bn3 since it last trained"; empty when it
  // did nothing of that.
  std::string text() const;
};

}  // namespace rondo::bn
