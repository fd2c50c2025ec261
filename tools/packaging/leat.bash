# SPDX-License-Identifier: Apache-2.0
# bash completion for leat
_leat() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]:-} options= files=1
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'serve run status topology model app pipeline offline bench simulate policy scale pool version help --help --version' -- "$word")
        return
    fi
    case $verb in
    help) options='serve run status topology model app pipeline offline bench simulate policy scale pool version' files= ;;
    serve) options='--config --socket --state-dir --check-config --json --version --help' ;;
    run) options='--input --output --items --length --latency --accuracy-floor --cost-cap --offline --count --json --socket --help' ;;
    model) options='--app --validation --variants --max-loss --precision --cores --items --dim --constant --runs --svg --without --passes --memory --loop-iterations --backend --items-max --accuracy --synthetic --input-bytes --output-bytes --json --socket
                    --help'
           [ "$COMP_CWORD" -eq 2 ] && options="add list show profile inspect remove $options" ;;
    app) options='--models --remove-models --latency --late --router --selector --policy --threshold --percentile --queue
                  --with-models --profiles --accuracies --task --front --statistic --repair --items-max --mode --prefix
                  --input-bytes --output-bytes --json --socket --help'
         [ "$COMP_CWORD" -eq 2 ] && options="add change list show remove export import $options" ;;
    pipeline) options='--name --json --socket --help'
              [ "$COMP_CWORD" -eq 2 ] && options="add list show remove $options" ;;
    offline) options='--application --input --output --accuracy-floor --wait --json --socket --help'
             [ "$COMP_CWORD" -eq 2 ] && options="submit list show cancel resume $options" ;;
    bench) options='--rate --duration --warmup --queries --drain --processes --slots --arrivals --burst-factor --burst-share --burst-mean
                    --latency --accuracy-floor --cost-cap --offline --items --sizes --inputs --labels --course --seed --search --rate-min --rate-max --violations --tolerance
                    --json --socket --help' ;;
    simulate) options='--profile --model --classes --mix --prices --sizes --later-sizes --change-at --arrivals --burst-factor
                       --burst-share --burst-queries --queries --seed --seeds --router --threshold --depth --base
                       --objective --violations --percentile --prediction-noise --service-noise --learn --rate --tolerance --json
                       --csv --svg --threads --help --profiles --accuracies --task --cores --statistic --variants --batch-max
                       --selector --policy --rate-step --workers --late --trace --trace-cycle --dispersion --burst-mean --load
                       --window --duration --abort --late-svg --stages --pipeline --revision --graph --scaler --resize-delay --start-delay --settle
                       --deviations --hold --period --forecast --batches --drop --violations-svg
                       --autoscale --cpu-cores --inferentia-cores --gpus --headroom --load-weight --steady' ;;
    policy) options='--profiles --accuracies --task --cores --statistic --variants --objective --workers --rates --output --mode
                     --late --penalty --dispersion --queue --slack-bins --batch --idle-levels --held --model-queue --spread
                     --prompt --batching --grid --split --jobs --svg --json --help'
            [ "$COMP_CWORD" -eq 2 ] && options="generate fetch refresh show evaluate --socket $options" ;;
    pool) options='--budget --objective --price --max --cores --base --sizes --variant --top --by --router --seed --profile --model
                   --prices --percentile --json --socket --help'
          [ "$COMP_CWORD" -eq 2 ] && options="plan $options" ;;
    scale) options='--cores --for --for-all --json --socket --help --stages --pipeline --revision --objective --rate --mode --scaling --instances
                    --deviations'
           [ "$COMP_CWORD" -eq 2 ] && options="show set plan $options" ;;
    status) options='--wait --json --socket --help' ;;
    topology|version) options='--json --socket --help' ;;
    esac
    case ${COMP_WORDS[COMP_CWORD-1]} in
    --backend) options='cpu reference' files= ;;
    --precision) options='f32 bf16 int8' files= ;;
    --without) options=$("${COMP_WORDS[0]}" model inspect --passes 2> /dev/null | cut -d ' ' -f 1) files= ;;
    --arrivals) options='constant poisson bursty' ;;
    --router) options='clockwork dealt edf fcfs laxity matching round_robin shortest_queue threshold' files=
              [ "$verb" = simulate ] && options="all oracle $options" ;;
    --mode) options='leat dealt paper switching' files=
            [ "$verb" = app ] && options='sleep burn'
            [ "$verb" = scale ] && options='leat paper' ;;
    --scaling) options='vertical horizontal both' files= ;;
    --batching) options='maximal variable powers' files= ;;
    --grid) options='fixed latency' files= ;;
    --split) options='round_robin shortest_queue' files= ;;
    --late) options='serve drop' files=
            [ "$verb" = simulate ] && options="last $options" ;;
    --load) options='known measured' files= ;;
    --by) options='simulation bound' files= ;;
    --config|--socket|--state-dir|--input|--output|--inputs|--labels|--profile|--profiles|--accuracies|--policy|--trace|--sizes|--later-sizes|--prices|--course|--csv|--svg|--late-svg|--stages|--graph|--autoscale|--violations-svg) options= ;;
    --scaler) options='none fa2 fa2-slack sponge themis leat' files= ;;
    --batches) options='waiting whole' files= ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word"; [[ $word == -* || -z $files ]] || compgen -f -- "$word")
}
complete -o filenames -F _leat leat
