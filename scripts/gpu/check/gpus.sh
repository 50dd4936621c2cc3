# shellcheck shell=bash
# The GPUs that check.sh uses. NVIDIA's nvidia-smi lists those of the whole host; CUDA_VISIBLE_DEVICES may hide some of
# them from CUDA or change their order.

# visible_gpus: prints the index in nvidia-smi (or the name, for a part of a GPU, MIG-...) of each GPU that programs see,
# in their order. Like CUDA, it ends the list at the first name that is none. Indices count the GPUs in the order of
# nvidia-smi, which CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID.
visible_gpus() {
  local listing names name found
  listing=$(nvidia-smi -L 2> /dev/null | grep -E '^GPU [0-9]+:')
  if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
    sed -nE 's/^GPU ([0-9]+):.*/\1/p' <<< "$listing"
    return
  fi
  IFS=, read -ra names <<< "$CUDA_VISIBLE_DEVICES"
  for name in "${names[@]}"; do
    name=${name//[[:space:]]/}
    case "$name" in
      GPU-*) found=$(grep -F "(UUID: $name" <<< "$listing") || return 0 ;;
      MIG-*) found="GPU $name:" ;;
      *) found=$(grep -E "^GPU $name:" <<< "$listing") || return 0 ;;
    esac
    [ "$(wc -l <<< "$found")" -eq 1 ] || return 0  # the beginning of a UUID has to be unique
    sed -E 's/^GPU ([^:]+):.*/\1/' <<< "$found"
  done
}
