// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string.h>

#include <optional>

#include <rondo/error.h>

#include "grad/trace.h"
#include "grad/trace_exchange.h"
#include "grad/trace_file.h"

namespace rondo::grad {

namespace {

constexpr std::size_t problem_bytes = 1024;

// Rank 0's problem becomes everybody's error.
void share_problem(Communicator& communicator, const std::string& problem) {
  std::vector<std::uint8_t> text(problem_bytes);
  problem.copy(reinterpret_cast<char*>(text.data()), text.size() - 1);
  OpOptions options;
  options.tag = "save_trace";
  communicator.broadcast(buffer_of(std::span(text)), buffer_of(std::span(text)), 0, options).wait();
  if (text[0] == 0) return;
  const char* const said = reinterpret_cast<const char*>(text.data());
  throw Error(Errc::system, fmt::format("save_trace: rank 0 {}",
                                        std::string(said, ::strnlen(said, text.size()))));
}

}  // namespace

void Trace::save(Communicator& communicator, const std::string& path) const {
  std::optional<TraceFile> file;
  if (communicator.rank() == 0) file.emplace(path);
  const int size = communicator.size();
  exchange_traces(communicator, kept_,
                  [&](int rank, const RankTrace& trace) { file->add_rank(rank, size, trace); });
  share_problem(communicator, file ? file->commit() : std::string());
}

}  // namespace rondo::grad
