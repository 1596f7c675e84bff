"""What `make lint` must not call dead: names that frameworks, forked processes and users reach, not our own code.

Each line names what is used and stands under who uses it. What tests alone use does not belong here, but for the few
at the end. Module-level names are also looked at by tests/unit/test_unreached.py, which resolves imports.
"""

# torch: TorchDispatchMode asks it before torch.compile traces through the mode
_._should_skip_dynamo, _.supports_higher_order_operators
# Python: what makes an instance one of another class
_.__class__, _.__path__
# torch: attributes of tensors, streams and events that candidates read
_.is_cpu, _.is_pinned, _.as_subclass, _.share_memory_, _.is_shared, _.record_stream, _.tensor_contents
_.device_index, _.cuda_stream, _.stream_id
_.wait_stream, _.wait_event, _.is_capturing, _.record_event, _.priority_range
# torch: parameters of the functions of torch.cuda, and of operators called with their names
_.blocking, _.interprocess, _.including_emulation, _.peer, _.fraction, _.check_available
_.hw, _.half_to_float
# torch: names of torch.utils.cpp_extension
_.CUDA_HOME, _.ROCM_HOME, _.load_inline
# torch: switches that it reads
_.allow_tf32
# Triton: its interfaces of a driver, a compiled kernel and its options
_.launcher_cls, _.is_active, _.get_current_device, _.set_current_device, _.get_current_stream
_.get_active_torch_device, _.get_device_interface, _.get_empty_cache_for_benchmark, _.map_python_to_cpp_type
_.set_printf_fifo_size, _.metadata_group, _.packed_metadata, _.n_regs, _.n_spills, _.n_max_threads, _._init_handles
# transformers and tokenizers
_.get_seq_length, _.pre_tokenizer
# rich, typer (members of an Enum are the words that it accepts), httpx, tempfile
_.transient, _.fp64, _.fp32, _.fp16, _.bf16, _.on_response, _.tempdir
# Python: a module's __getattr__, a metaclass's methods
__getattr__, _.__instancecheck__, _.__call__
# SkyRL, OpenEnv, TRL: methods and names that they look for; users import the functions (docs/adapters.md)
_.SUPPORTS_CONCURRENT_SESSIONS, _.KernelClient, _._step_payload, _._parse_result, _._parse_state
_.max_turns, _.get_metrics, _.dataset_rows, _.kernel_reward, _.completions, _.make_rollout_func, _.make_environment
_.get_reward, _.TurnGRPOTrainer
# verl: what it looks for in a platform, a rollout server, an agent loop and a trainer (engines/verl)
_.device_name, _.vendor_name, _.device_module, _.current_device, _.get_device_capability, _.communication_backend_name
_.visible_devices_envvar, _.nvtx_range, _.ray_resource_name, _.ray_noset_envvars, _.is_ipc_supported, _.cudart
_.set_allocator_settings, _.profiler_start, _.profiler_stop, _.empty_cache, _.device_index
_.request_id, _.unused, _.abort_all_requests, _.resume_generation, _.clear_kv_cache, _.release_kv_cache
_.resume_kv_cache, _.start_profile, _.stop_profile, _.launch_servers, _.servers, _._server_handle, _._server_address
_.update_weights, _.KernelAgentLoop, _.KernelBuffer, _._compute_old_log_prob, _._compute_advantage, _.trainer_mode
_.get_llm_client, _.on_train_begin, _.prepare_step, _.on_sample_end, _.on_step_end, _._setup, _.current_mode
_._save_checkpoint, _._load_checkpoint, _.standalone_checkpoint_manager
_.mode, _.build_topology, _.finalize, _.send_weights, _.receive_weights, _.AheadTrainer
# a module of candidates' own that a zygote imports before it forks
drkernel
# fields of records that are read as JSON: tables of answers, run states, requests of other services, command lines
_.tokens_estimated, _.fast_12, _.workflow, _.offset_bytes, _.launch_coverage_B
_.compile_error, _.wrong_step, _.response_truncation
# shown by a template (report/templates)
_.candidate_sha256, _.binds, _.listings
# held so that they live: the socket whose name is the claim; what C calls
_.uid_claim, _.deleter
# what only tests can see of another process
_.wait_until_gone, _.pids
# read by TorchDynamo
_._torchdynamo_inline
# called by scripts, as Triton has it: an argument and a method of CublasLt
workspace, _.gemm
# read by the script of the live page (serve/static/watch.js)
_.timing_kind
# asked by torch of a dispatch mode
_.ignore_compile_internals
SkyRLKernelEnv  # by its path, in skyrl_gym.register
# columns of a batch, by name (TurnBatch.need)
_.speed_rewards_B, _.speed_reward
# sent by KernelGYM's clients, checked and otherwise ignored
_.toolkit, _.backend_adapter
# a stream's, a generator's and a tensor's, as PyTorch has them
_.device_type, _.clone_state, _.graphsafe_get_state, _.graphsafe_set_state, _.apply_
