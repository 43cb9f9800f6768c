// SPDX-License-Identifier: Apache-2.0
//
// Lists and reports of parameters from the wire. A list that decodes must encode to the same bytes,
// and can be compared and described. Any bytes decode to a report that gives an error with a text.
#include <algorithm>
#include <cstdlib>

#include "training/parameter_list.h"

using namespace rondo;

namespace {

void compare(const std::vector<training::ListedParameter>& list) {
  std::vector<training::ListedParameter> shorter = list;
  if (!shorter.empty())
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(shorter.size() / 2));
  if (training::first_difference(list, list).kind != training::Report::Kind::none) std::abort();
  const training::Report found = training::first_difference(list, shorter);
  if ((found.kind == training::Report::Kind::none) != list.empty()) std::abort();
  if (found.index > list.size()) std::abort();
}

void report(const std::uint8_t* data, std::size_t size,
            const std::vector<training::ListedParameter>& list) {
  training::ReportBytes bytes{};
  std::copy_n(data, std::min(size, bytes.size()), bytes.begin());
  const training::Report decoded = training::decode(bytes);
  for (const bool problem : {false, true}) {
    try {
      if (problem) training::throw_problem({training::Report{}, decoded});
      training::throw_difference({training::Report{}, decoded}, list);
    } catch (const Error& error) {
      if (*error.what() == '\0') std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  const auto list = training::decode_list(bytes);
  if (list) {
    const std::vector<std::uint8_t> again = training::encode_list(*list);
    if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
    for (const training::ListedParameter& each : *list)
      if (training::describe(each).empty()) std::abort();
    compare(*list);
  }
  report(data, size, list.value_or(std::vector<training::ListedParameter>{}));
  return 0;
}
