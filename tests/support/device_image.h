// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

namespace rondo::testing {

// The fat binary that nvcc has made of the kernels of a room.
class DeviceImage {
 public:
  // image: as nvcc made it; it outlives the object.
  explicit DeviceImage(const void* image) {
    std::memcpy(&header_, image, sizeof header_);
    if (is_fat_binary())
      text_ = {static_cast<const char*>(image), header_.header_bytes + header_.bytes};
  }
  bool is_fat_binary() const noexcept { return header_.magic == 0xba55ed50; }
  // The names of the entry points. Code for a generation has a section for each kernel; PTX has a
  // line. Empty where nvcc has compressed all code.
  std::set<std::string> kernels() const {
    std::set<std::string> found;
    for (const std::string_view mark : {".text.rondo_", ".entry rondo_"})
      for (std::size_t at = text_.find(mark); at != text_.npos; at = text_.find(mark, at + 1)) {
        const std::size_t start = at + mark.find("rondo_");
        const std::size_t end =
            text_.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", start);
        found.emplace(text_.substr(start, end - start));
      }
    return found;
  }
  // Only a build with a sanitizer has readable PTX.
  bool has_ptx() const noexcept { return contains(".entry rondo_"); }
  bool contains(std::string_view part) const noexcept { return text_.find(part) != text_.npos; }

 private:
  struct {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;  // of this header
    std::uint64_t bytes;                  // behind it
  } header_;
  std::string_view text_;
};

}  // namespace rondo::testing
