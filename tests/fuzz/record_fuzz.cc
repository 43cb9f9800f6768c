// SPDX-License-Identifier: Apache-2.0
//
// The record that a rank sends when it joins. Two ranks send the input as their record. Then they
// send it again behind a valid beginning, so that settings and constants are decoded too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <rondo/error.h>

#include "lib/record.h"

using namespace rondo;

namespace {

// The bytes of a CoreShare without processors (lib/core_share.h).
constexpr std::size_t share_bytes = 2 + 2 + 4 + 8 + 4;

void read(const transports::Blob& record) {
  try {
    const std::vector<transports::Blob> blobs(2, record);
    const auto records = lib::read_records(blobs);
    const schedules::Hosts hosts = lib::group_by_host(records);
    if (hosts.count() != 1 || lib::cores_of(records, hosts) < 1) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::rendezvous) std::abort();  // equal records never give a mismatch
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(transports::Blob(bytes.begin(), bytes.end()));

  // A record as this build writes it, up to its settings; the input follows it.
  static const transports::Blob head = [] {
    Options options;
    options.host = "host";
    transports::Blob whole = lib::write_record(options, {}, {}, lib::CostSource::defaults, {});
    whole.resize(4 + options.host.size() + share_bytes + 1);
    return whole;
  }();
  transports::Blob record = head;
  record.insert(record.end(), bytes.begin(), bytes.end());
  read(record);
  return 0;
}
